package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	v1 "k8s.io/kubelet/pkg/apis/dra/v1"
)

// callTimeout is the deadline of a call to a driver (upstream: 45 s).
const callTimeout = 45 * time.Second

// Prepare makes the drivers prepare the pod's claims, before its first container is created. The caller retries it
// until it succeeds. Its error wraps an *Absent if a driver is not registered.
func (m *Manager) Prepare(ctx context.Context, pod *corev1.Pod) (err error) {
	began := m.cfg.Clock.Now()
	defer func() { m.metrics.operation("PrepareResources", began, err) }()
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err == nil && name != nil {
			err = m.prepare(ctx, pod, *name, owned)
		}
		if err != nil {
			return fmt.Errorf("prepare dynamic resources: %w", err)
		}
	}
	if st := pod.Status.ExtendedResourceClaimStatus; st != nil {
		if err := m.prepare(ctx, pod, st.ResourceClaimName, true); err != nil {
			return fmt.Errorf("prepare dynamic resources: %w", err)
		}
	}
	return nil
}

// prepare prepares a claim, which must be reserved for the pod. owned means that the pod must also be its owner.
func (m *Manager) prepare(ctx context.Context, pod *corev1.Pod, name string, owned bool) error {
	object, err := m.cfg.API.Claim(ctx, pod.Namespace, name)
	if err != nil {
		return fmt.Errorf("fetch ResourceClaim %s: %w", name, err)
	}
	if owned {
		if err := resourceclaim.IsForPod(pod, object, false); err != nil {
			return err
		}
	}
	if object.Status.Allocation == nil {
		return fmt.Errorf("ResourceClaim %s has no devices yet", name)
	}
	if !resourceclaim.IsReservedForPod(pod, object, false) {
		return fmt.Errorf("pod %s(%s) is not allowed to use resource claim %s(%s)", pod.Name, pod.UID, object.Name,
			object.UID)
	}
	c, err := m.reserve(object, pod.UID)
	if err != nil {
		return fmt.Errorf("checkpoint of resource claims: %w", err)
	}
	done, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	if c.prepared {
		return nil
	}
	var devices []Device
	for _, name := range c.Drivers {
		more, err := m.callPrepare(ctx, name, c)
		if err != nil {
			return err
		}
		devices = append(devices, more...)
	}
	m.mu.Lock()
	c.Devices, c.prepared = devices, true
	m.mu.Unlock()
	return m.save()
}

func (m *Manager) callPrepare(ctx context.Context, name string, c *claim) (devices []Device, err error) {
	d, err := m.driver(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := m.cfg.Clock.Now()
	resp, err := d.api.NodePrepareResources(ctx, &v1.NodePrepareResourcesRequest{Claims: []*v1.Claim{c.request()}})
	m.metrics.call(name, "NodePrepareResources", began, err)
	if err != nil {
		return nil, fmt.Errorf("NodePrepareResources of DRA driver %s: %w", name, err)
	}
	result := resp.GetClaims()[string(c.UID)]
	if result == nil {
		return nil, fmt.Errorf("NodePrepareResources of DRA driver %s returned no result for claim %s", name, c.Name)
	}
	if result.Error != "" {
		return nil, fmt.Errorf("NodePrepareResources of DRA driver %s failed for claim %s: %s", name, c.Name, result.Error)
	}
	for _, one := range result.Devices {
		devices = append(devices,
			Device{Driver: name, Pool: one.PoolName, Device: one.DeviceName, Requests: one.RequestNames, CDI: one.CdiDeviceIds})
	}
	return devices, nil
}

func (c *claim) request() *v1.Claim {
	return &v1.Claim{Namespace: c.Namespace, Uid: string(c.UID), Name: c.Name}
}

// Unprepare makes the drivers release the claims of a pod whose containers are dead, unless other pods of the node use
// them. The caller retries it until it succeeds.
func (m *Manager) Unprepare(ctx context.Context, pod types.UID) (err error) {
	held := m.claimsOf(pod)
	if len(held) == 0 {
		return nil
	}
	began := m.cfg.Clock.Now()
	defer func() { m.metrics.operation("UnprepareResources", began, err) }()
	for _, c := range held {
		if err := m.unprepare(ctx, c, pod); err != nil {
			return fmt.Errorf("unprepare dynamic resources: %w", err)
		}
	}
	return nil
}

// unprepare releases a claim for a pod; "": for a pod that no longer exists.
func (m *Manager) unprepare(ctx context.Context, c *claim, pod types.UID) error {
	done, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	m.mu.Lock()
	shared := slices.ContainsFunc(c.Pods, func(uid types.UID) bool { return uid != pod })
	m.mu.Unlock()
	if shared {
		return m.drop(c, pod)
	}
	for _, name := range c.Drivers {
		if err := m.callUnprepare(ctx, name, c); err != nil {
			return err
		}
	}
	m.mu.Lock()
	c.prepared, c.Devices = false, nil
	m.mu.Unlock()
	return m.drop(c, pod)
}

// drop removes the pod from the claim, and removes the claim if no other pod uses it. If another pod has reserved the
// claim meanwhile, that pod prepares it again.
func (m *Manager) drop(c *claim, pod types.UID) error {
	m.mu.Lock()
	c.Pods = slices.DeleteFunc(c.Pods, func(uid types.UID) bool { return uid == pod })
	if len(c.Pods) == 0 {
		delete(m.claims, c.UID)
	}
	m.mu.Unlock()
	return m.save()
}

func (m *Manager) callUnprepare(ctx context.Context, name string, c *claim) error {
	d, err := m.driver(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := m.cfg.Clock.Now()
	resp, err := d.api.NodeUnprepareResources(ctx, &v1.NodeUnprepareResourcesRequest{Claims: []*v1.Claim{c.request()}})
	m.metrics.call(name, "NodeUnprepareResources", began, err)
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources of DRA driver %s: %w", name, err)
	}
	result, ok := resp.GetClaims()[string(c.UID)]
	if !ok {
		return fmt.Errorf("NodeUnprepareResources of DRA driver %s returned no result for claim %s", name, c.Name)
	}
	if result.GetError() != "" {
		return fmt.Errorf("NodeUnprepareResources of DRA driver %s failed for claim %s: %s", name, c.Name, result.Error)
	}
	return nil
}

// unprepareOrphans releases the claims whose pods were removed while no agent ran.
func (m *Manager) unprepareOrphans(ctx context.Context) error {
	m.mu.Lock()
	var orphans []*claim
	for _, c := range m.claims {
		if len(c.Pods) == 0 {
			orphans = append(orphans, c)
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, c := range orphans {
		if err := m.unprepare(ctx, c, ""); err != nil {
			m.cfg.Log.Warn("failed to unprepare the ResourceClaim of an orphaned pod",
				zap.String("namespace", c.Namespace), zap.String("claim", c.Name), zap.Error(err))
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
