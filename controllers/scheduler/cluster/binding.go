package cluster

import (
	"fmt"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// BindTime is how long a pod stays on a node while its volumes are bound and its devices prepared (upstream:
// BindTimeoutSeconds of VolumeBindingArgs, BindingTimeout of DynamicResourcesArgs).
const BindTime = 10 * time.Minute

// Conditional reports whether a device of the allocation has binding conditions, for which a pod waits before it is
// bound.
func Conditional(a *resourcev1.AllocationResult) bool {
	return a != nil &&
		slices.ContainsFunc(a.Devices.Results,
			func(r resourcev1.DeviceRequestAllocationResult) bool { return len(r.BindingConditions) > 0 })
}

// Ready reports whether the binding conditions of all devices of a claim are true. It returns an error if a failure
// condition is.
func Ready(claim *resourcev1.ResourceClaim) (bool, error) {
	if claim.Status.Allocation == nil {
		return false, nil
	}
	ready := true
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if len(r.BindingConditions) == 0 {
			continue
		}
		var is resourcev1.AllocatedDeviceStatus
		if j := slices.IndexFunc(claim.Status.Devices,
			func(d resourcev1.AllocatedDeviceStatus) bool { return same(&d, r) }); j >= 0 {
			is = claim.Status.Devices[j]
		}
		for _, name := range r.BindingFailureConditions {
			if c := meta.FindStatusCondition(is.Conditions, name); c != nil && c.Status == "True" {
				return false, fmt.Errorf("device binding failed: claim=%s, reason=%s, message=%q", claim.Name, c.Reason, c.Message)
			}
		}
		for _, name := range r.BindingConditions {
			ready = ready && meta.IsStatusConditionTrue(is.Conditions, name)
		}
	}
	return ready, nil
}

func same(d *resourcev1.AllocatedDeviceStatus, r *resourcev1.DeviceRequestAllocationResult) bool {
	id := ""
	if r.ShareID != nil {
		id = string(*r.ShareID)
	}
	share := ""
	if d.ShareID != nil {
		share = *d.ShareID
	}
	return d.Driver == r.Driver && d.Pool == r.Pool && d.Device == r.Device && share == id
}

// Overdue reports whether the devices of a claim were not ready within BindTime.
func (d *Devices) Overdue(claim *resourcev1.ResourceClaim) bool {
	a := claim.Status.Allocation
	return Conditional(a) && a.AllocationTimestamp != nil && a.AllocationTimestamp.Add(BindTime).Before(d.Now)
}
