package deviceplugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod/agent/podapi/env"
	"monopod/agent/podapi/spec"
	"monopod/agent/resources/topology"
)

// Deadlines of calls for one container. Upstream has no deadline for Allocate.
const (
	allocateTimeout = time.Minute
	preStartTimeout = plugin.KubeletPreStartContainerRPCTimeoutInSecs * time.Second
)

// Allocate implements topology.Provider. It only reserves devices; Prepare calls the plugin, which may be slow.
func (m *Manager) Allocate(_ context.Context, pod *corev1.Pod, c *corev1.Container, hint topology.Hint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	asks := m.pool.requested(pod, c)
	for _, name := range sortedKeys(asks) {
		count := asks[name]
		if has := m.pool.pods[pod.UID].of(c.Name, name); has != nil {
			if len(has) != count {
				return fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", pod.UID, c.Name, name,
					len(has), count)
			}
			continue
		}
		s, err := m.pool.choose(pod, c, name, count, hint.Nodes)
		if err != nil && m.releaseEnded() {
			s, err = m.pool.choose(pod, c, name, count, hint.Nodes)
		}
		if err != nil {
			return err
		}
		m.pool.put(pod.UID, c.Name, name, s)
	}
	return nil
}

// releaseEnded releases the devices of pods that have ended. The caller holds mu.
func (m *Manager) releaseEnded() (any bool) {
	for uid := range m.pool.pods {
		if m.cfg.Over(uid) {
			delete(m.pool.pods, uid)
			any = true
		}
	}
	return any
}

// Absent is the error for a resource whose plugin has not registered since the start.
type Absent struct{ Resource string }

func (a *Absent) Error() string {
	return fmt.Sprintf("the device plugin of %s is not registered", a.Resource)
}

// Prepare calls the plugins to allocate the pod's reserved devices, before any of its containers runs. After a reboot
// it returns an Absent for a pod with devices until their plugins have registered. Other errors are final.
func (m *Manager) Prepare(ctx context.Context, pod *corev1.Pod) error {
	m.mu.Lock()
	has := m.pool.pods[pod.UID]
	m.mu.Unlock()
	if has == nil {
		return nil
	}
	called := false
	for _, c := range spec.Containers(&pod.Spec) {
		for _, name := range m.namesOf(pod.UID, c.Name) {
			fresh, err := m.prepare(ctx, pod, c, name)
			if err != nil {
				return err
			}
			called = called || fresh
		}
	}
	if called {
		m.save()
	}
	return nil
}

func (m *Manager) namesOf(uid types.UID, container string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return sortedKeys(m.pool.pods[uid][container])
}

// prepare calls the plugin for a container's devices of one resource, unless it was called before.
func (m *Manager) prepare(ctx context.Context, pod *corev1.Pod, c *corev1.Container,
	name string) (called bool, err error) {
	m.mu.Lock()
	r, s := m.pool.resources[name], m.pool.pods[pod.UID][c.Name][name]
	if s == nil {
		m.mu.Unlock()
		return false, nil // the devices were released meanwhile
	}
	e, err := r.endpoint, s.ready(name, r)
	done := s.response != nil
	m.mu.Unlock()
	if err != nil || done {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	m.usePreferred(ctx, e, pod, c, s)
	return true, m.allocate(ctx, e, s)
}

// ready returns an error if the plugin cannot allocate the devices now.
func (s *share) ready(name string, r *resource) error {
	unhealthy := func(id string) bool { return !r.devices[id].healthy }
	switch {
	case s.response != nil && !s.restored:
		return nil // the agent has called the plugin since its start
	case !r.seen, s.response != nil && r.endpoint == nil:
		return &Absent{name}
	case s.response != nil && slices.ContainsFunc(s.ids, unhealthy):
		return fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", name)
	case r.endpoint == nil:
		return fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", name)
	}
	s.restored = false
	return nil
}

// usePreferred asks the plugin for its preferred allocation and replaces the chosen devices by it. Without a valid
// answer the chosen devices stay.
func (m *Manager) usePreferred(ctx context.Context, e *endpoint, pod *corev1.Pod, c *corev1.Container, s *share) {
	if !e.options.GetGetPreferredAllocationAvailable() {
		return
	}
	m.mu.Lock()
	r := m.pool.resources[e.resource]
	mine := slices.Clone(s.ids)
	must := intersection(mine, m.pool.reusable(pod, c, e.resource))
	aligned, others := r.rank(union(mine, m.pool.free(e.resource)), s.near)
	m.mu.Unlock()
	choice := aligned
	if len(union(aligned, must)) < len(mine) {
		choice = slices.Concat(aligned, others)
	}
	req := &plugin.ContainerPreferredAllocationRequest{
		AvailableDeviceIDs: union(choice, must), MustIncludeDeviceIDs: must, AllocationSize: int32(len(mine)),
	}
	resp, err := e.api.GetPreferredAllocation(ctx,
		&plugin.PreferredAllocationRequest{ContainerRequests: []*plugin.ContainerPreferredAllocationRequest{req}})
	if err != nil {
		m.log.Warn("device plugin failed to return a preferred allocation", zap.String("resource", e.resource),
			zap.Error(err))
		return
	}
	for _, answer := range resp.ContainerResponses {
		to := completePreferred(answer.DeviceIDs, req, mine)
		m.mu.Lock()
		// Replace the devices of the container, unless the new ones were allocated to another one meanwhile.
		still := m.pool.pods[pod.UID] != nil && slices.Equal(s.ids, mine)
		if still && len(without(without(to, mine), m.pool.free(e.resource))) == 0 {
			m.pool.pods[pod.UID].swap(e.resource, mine, to)
		}
		m.mu.Unlock()
	}
}

// completePreferred completes a preferred allocation: the required devices, then the preferred devices that are
// available, then the chosen ones.
func completePreferred(preferred []string, req *plugin.ContainerPreferredAllocationRequest, chosen []string) []string {
	out := slices.Clone(req.MustIncludeDeviceIDs)
	for _, id := range slices.Concat(intersection(preferred, req.AvailableDeviceIDs), chosen) {
		if len(out) < len(chosen) && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// allocate calls the plugin's Allocate.
func (m *Manager) allocate(ctx context.Context, e *endpoint, s *share) error {
	start := m.cfg.Clock.Now()
	m.mu.Lock()
	ids := slices.Clone(s.ids)
	m.mu.Unlock()
	resp, err := e.api.Allocate(ctx,
		&plugin.AllocateRequest{ContainerRequests: []*plugin.ContainerAllocateRequest{{DevicesIds: ids}}})
	m.metrics.allocations.WithLabelValues(e.resource).Observe(m.cfg.Clock.Since(start).Seconds())
	if err != nil {
		return err
	}
	if len(resp.ContainerResponses) == 0 || resp.ContainerResponses[0] == nil {
		return fmt.Errorf("no containers return in allocation response %v", resp)
	}
	m.mu.Lock()
	s.response = resp.ContainerResponses[0]
	m.mu.Unlock()
	return nil
}

// Allotment implements topology.Provider. It calls PreStartContainer of plugins that
// request it.
func (m *Manager) Allotment(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (spec.Allotment, error) {
	var out spec.Allotment
	for _, name := range m.namesOf(pod.UID, c.Name) {
		m.mu.Lock()
		s, e := m.pool.pods[pod.UID][c.Name][name], m.pool.resources[name].endpoint
		m.mu.Unlock()
		if s == nil || s.response == nil {
			return out, fmt.Errorf("the devices of %s are not allocated", name)
		}
		if err := preStart(ctx, e, s.ids); err != nil {
			return out, fmt.Errorf("device plugin of %s: PreStartContainer: %w", name, err)
		}
		addResponse(&out, s.response)
	}
	m.mu.Lock()
	note, err := m.pool.note(pod.UID, c.Name)
	m.mu.Unlock()
	if note != "" {
		out.Annotate(annotation, note)
	}
	return out, err
}

// preStart calls PreStartContainer if the plugin requests it.
func preStart(ctx context.Context, e *endpoint, ids []string) error {
	if e == nil || !e.options.GetPreStartRequired() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, preStartTimeout)
	defer cancel()
	_, err := e.api.PreStartContainer(ctx, &plugin.PreStartContainerRequest{DevicesIds: ids})
	return err
}

// addResponse adds the plugin's response to the container's config.
func addResponse(out *spec.Allotment, r *plugin.ContainerAllocateResponse) {
	for _, name := range sortedKeys(r.Envs) {
		out.Envs = append(out.Envs, env.Var{Name: name, Value: r.Envs[name]})
	}
	for _, d := range r.Devices {
		out.Devices = append(out.Devices,
			&cri.Device{ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions})
	}
	for _, mt := range r.Mounts {
		out.Mounts = append(out.Mounts,
			&cri.Mount{ContainerPath: mt.ContainerPath, HostPath: mt.HostPath, Readonly: mt.ReadOnly})
	}
	for name, value := range r.Annotations {
		out.Annotate(name, value)
	}
	for _, d := range r.CdiDevices {
		out.CDI = append(out.CDI, &cri.CDIDevice{Name: d.Name})
	}
}

func intersection(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(id string) bool { return !slices.Contains(b, id) })
}

func union(a, b []string) []string { return append(slices.Clone(a), without(b, a)...) }
