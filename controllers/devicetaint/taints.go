package devicetaint

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	upstream "k8s.io/dynamic-resource-allocation/resourceclaim"

	"monopod/apiserver/kit/client"
	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// pool identifies a driver's pool of devices.
type pool struct{ driver, name string }

// evicting reports whether a rule, which may be nil, has the effect NoExecute.
func evicting(rule *resourcev1.DeviceTaintRule) bool {
	return rule != nil && rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute
}

// eachDevice calls f for the devices of a pool until f returns false. It ignores slices of an older generation. The
// caller holds mu.
func (r *run) eachDevice(id pool, f func(*resourcev1.Device) bool) {
	newest := int64(-1)
	for _, slice := range r.pools[id] {
		newest = max(newest, slice.Spec.Pool.Generation)
	}
	for _, slice := range r.pools[id] {
		for i := range slice.Spec.Devices {
			if slice.Spec.Pool.Generation == newest && !f(&slice.Spec.Devices[i]) {
				return
			}
		}
	}
}

// hasNoExecute reports whether a device of a pool has a NoExecute taint. The caller holds mu.
func (r *run) hasNoExecute(id pool) (found bool) {
	r.eachDevice(id, func(d *resourcev1.Device) bool {
		for i := range d.Taints {
			found = found || d.Taints[i].Effect == resourcev1.DeviceTaintEffectNoExecute
		}
		return !found
	})
	return found
}

// eviction describes when and why a pod must be deleted.
type eviction struct {
	when  time.Time
	rules map[*resourcev1.DeviceTaintRule]bool // rules whose taints are among the reasons
}

// eviction returns when the taints of a pod's devices require its deletion, nil if they do not. It treats the rule
// supposed, which may be nil, as if its effect were NoExecute.
func (r *run) eviction(ctx context.Context, pod *corev1.Pod, supposed *resourcev1.DeviceTaintRule) (*eviction, error) {
	if pod.Spec.NodeName == "" {
		return nil, nil
	}
	var e *eviction
	for name, owns := range upstream.PodClaims(pod) {
		claim, err := client.Get[*resourcev1.ResourceClaim](ctx, r.deps.Client, pod.Namespace, name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if claim.Status.Allocation == nil || owns && upstream.IsForPod(pod, claim, false) != nil ||
			!upstream.IsReservedForPod(pod, claim, false) {
			continue
		}
		r.mu.Lock()
		for i := range claim.Status.Allocation.Devices.Results {
			e = r.add(e, &claim.Status.Allocation.Devices.Results[i], supposed)
		}
		r.mu.Unlock()
	}
	return e, nil
}

// add adds the taints of one device. The caller holds mu.
func (r *run) add(e *eviction, device *resourcev1.DeviceRequestAllocationResult,
	supposed *resourcev1.DeviceTaintRule) *eviction {
	one := func(taint *resourcev1.DeviceTaint, rule *resourcev1.DeviceTaintRule) {
		stay, forever := tolerated(taint, device.Tolerations)
		if forever {
			return
		}
		when := time.Time{}
		if taint.TimeAdded != nil {
			when = taint.TimeAdded.Add(stay)
		}
		if e == nil {
			e = &eviction{when: when, rules: map[*resourcev1.DeviceTaintRule]bool{}}
		}
		if when.Before(e.when) {
			e.when = when
		}
		if rule != nil {
			e.rules[rule] = true
		}
	}
	r.eachDevice(pool{device.Driver, device.Pool}, func(d *resourcev1.Device) bool {
		for i := range d.Taints {
			if d.Name == device.Device && d.Taints[i].Effect == resourcev1.DeviceTaintEffectNoExecute {
				one(&d.Taints[i], nil)
			}
		}
		return d.Name != device.Device
	})
	for _, rule := range r.rules {
		if (evicting(rule) || rule == supposed) && podstate.Taints(rule, device.Driver, device.Pool, device.Device) {
			taint := rule.Spec.Taint
			taint.Effect = resourcev1.DeviceTaintEffectNoExecute
			one(&taint, rule)
		}
	}
	return e
}

// tolerated returns for how long a NoExecute taint is tolerated. A toleration without tolerationSeconds tolerates it
// forever; otherwise the shortest one counts.
func tolerated(taint *resourcev1.DeviceTaint,
	tolerations []resourcev1.DeviceToleration) (stay time.Duration, forever bool) {
	found := false
	for _, t := range tolerations {
		if !upstream.ToleratesTaint(t, *taint) {
			continue // as in the scheduler, which would allocate the device again
		}
		if t.TolerationSeconds == nil {
			return 0, true
		}
		if d := max(0, owned.Seconds(*t.TolerationSeconds)); !found || d < stay {
			stay, found = d, true
		}
	}
	return stay, false
}
