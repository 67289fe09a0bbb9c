package dra

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// claim is a ResourceClaim for which drivers were called. The checkpoint contains the exported fields.
type claim struct {
	UID             types.UID
	Namespace, Name string
	Pods            []types.UID // of this node that use the claim
	Drivers         []string    // that were called, or are about to be
	Devices         []Device    // of all drivers

	prepared bool          // since the start: drivers prepare again what a restart of the machine may have undone
	locked   chan struct{} // held by the only call for the claim
}

// Device is a prepared device.
type Device struct {
	Driver, Pool, Device string
	Requests             []string // names of the claim's requests that the device satisfies; empty: all
	CDI                  []string // names of CDI devices
}

// lock waits until no other call for the claim runs; the caller must call done.
func (c *claim) lock(ctx context.Context) (done func(), err error) {
	select {
	case c.locked <- struct{}{}:
		return func() { <-c.locked }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// checkpointData is the content of the checkpoint.
type checkpointData struct {
	Version string
	Claims  []claim
}

const version = "v1"

func (m *Manager) restore() {
	var data checkpointData
	_, err := m.cfg.File.Load(&data)
	if err == nil && data.Version != "" && data.Version != version {
		err = fmt.Errorf("%s: unknown version %q", m.cfg.File, data.Version)
	}
	if err != nil {
		if m.lost, err = m.cfg.File.StartOver(err, "claims are prepared again"); err != nil {
			m.lost = err // pods run without a checkpoint
		}
		m.cfg.Log.Error("cannot restore the checkpoint of resource claims", zap.Error(m.lost))
		return
	}
	for _, c := range data.Claims {
		c.locked = make(chan struct{}, 1)
		m.claims[c.UID] = &c
	}
}

// save writes the checkpoint.
func (m *Manager) save() error {
	m.saveMu.Lock()
	defer m.saveMu.Unlock()
	m.mu.Lock()
	data := checkpointData{Version: version}
	for _, c := range m.claims {
		data.Claims = append(data.Claims, claim{
			UID: c.UID, Namespace: c.Namespace, Name: c.Name,
			Pods: slices.Clone(c.Pods), Drivers: c.Drivers, Devices: c.Devices,
		})
	}
	m.mu.Unlock()
	slices.SortFunc(data.Claims, func(a, b claim) int { return strings.Compare(string(a.UID), string(b.UID)) })
	if len(data.Claims) == 0 {
		return m.cfg.File.Remove()
	}
	return m.cfg.File.Save(data)
}

// reserve records that a pod uses a claim, before a driver is called for it. It returns an error for a claim that was
// allocated again for other pods and has not been unprepared since.
func (m *Manager) reserve(object *resourcev1.ResourceClaim, pod types.UID) (*claim, error) {
	m.mu.Lock()
	c := m.claims[object.UID]
	if c != nil &&
		!slices.ContainsFunc(object.Status.ReservedFor,
			func(r resourcev1.ResourceClaimConsumerReference) bool { return slices.Contains(c.Pods, r.UID) }) {
		m.mu.Unlock()
		return nil, fmt.Errorf("ResourceClaim %s is still being released for an earlier pod", object.Name)
	}
	if c == nil {
		c = &claim{UID: object.UID, Namespace: object.Namespace, Name: object.Name, locked: make(chan struct{}, 1)}
		for i := range object.Status.Allocation.Devices.Results {
			if d := object.Status.Allocation.Devices.Results[i].Driver; !slices.Contains(c.Drivers, d) {
				c.Drivers = append(c.Drivers, d)
			}
		}
		m.claims[object.UID] = c
	}
	known := slices.Contains(c.Pods, pod)
	if !known {
		c.Pods = append(c.Pods, pod)
	}
	m.mu.Unlock()
	if known {
		return c, nil
	}
	return c, m.save()
}

// Holds reports whether the pod has claims that Unprepare must release.
func (m *Manager) Holds(pod types.UID) bool { return len(m.claimsOf(pod)) > 0 }

func (m *Manager) claimsOf(pod types.UID) (out []*claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.claims {
		if slices.Contains(c.Pods, pod) {
			out = append(out, c)
		}
	}
	return out
}

// forget removes the pods that are not alive from their claims. It reports whether there are claims without pods.
func (m *Manager) forget(alive func(types.UID) bool) (orphans bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.claims {
		c.Pods = slices.DeleteFunc(c.Pods, func(uid types.UID) bool { return !alive(uid) })
		orphans = orphans || len(c.Pods) == 0
	}
	return orphans
}

// claimUse is the use of a claim, or of one request in it, by a container.
type claimUse struct {
	title   corev1.ResourceName // in the pod's status
	claim   string
	request string // empty: all
}

// claimUses returns the claims that a container uses: those that it names, and the claim for its extended resources.
func claimUses(pod *corev1.Pod, c *corev1.Container) (out []claimUse) {
	for _, wants := range c.Resources.Claims {
		for i := range pod.Spec.ResourceClaims {
			e := &pod.Spec.ResourceClaims[i]
			if e.Name != wants.Name {
				continue
			}
			if name, _, err := resourceclaim.Name(pod, e); err == nil && name != nil { // nil: the pod needs none
				title := "claim:" + wants.Name
				if wants.Request != "" {
					title += "/" + wants.Request
				}
				out = append(out, claimUse{corev1.ResourceName(title), *name, wants.Request})
			}
		}
	}
	if st := pod.Status.ExtendedResourceClaimStatus; st != nil {
		for _, m := range st.RequestMappings {
			if m.ContainerName == c.Name {
				out = append(out, claimUse{corev1.ResourceName(m.ResourceName), st.ResourceClaimName, m.RequestName})
			}
		}
	}
	return out
}

// devicesOf returns the prepared devices for a use.
func (m *Manager) devicesOf(pod *corev1.Pod, u claimUse) (out []Device, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.claims {
		if c.Namespace != pod.Namespace || c.Name != u.claim || !slices.Contains(c.Pods, pod.UID) {
			continue
		}
		for _, d := range c.Devices {
			if u.request == "" || len(d.Requests) == 0 ||
				slices.ContainsFunc(d.Requests, func(r string) bool { return resourceclaim.BaseRequestRef(r) == u.request }) {
				out = append(out, d)
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("resource claim %s/%s is not prepared", pod.Namespace, u.claim)
}
