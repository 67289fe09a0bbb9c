package scheduler

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"monopod/apiserver/kit/client"
	"monopod/controllers/scheduler/cluster"
	"monopod/controllers/scheduler/rules"
)

// reserve writes the allocations and reservations of a pod's ResourceClaims. If it fails, the written ones stay
// reserved for the pod, and the next attempt continues from there.
func (r *run) reserve(ctx context.Context, pod *corev1.Pod, all []rules.Reservation) error {
	for i := range all {
		res := &all[i]
		var err error
		if res.Mappings != nil {
			err = r.createClaim(ctx, res)
		}
		if err == nil {
			err = r.reserveClaim(ctx, pod, *res)
		}
		if err == nil && res.Mappings != nil {
			// The kubelet finds the claim for extended resources in the pod's status.
			_, err = client.Update(ctx, r.deps.Client, pod, "status", func(cur *corev1.Pod) error {
				cur.UID = pod.UID
				cur.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
					RequestMappings: res.Mappings, ResourceClaimName: res.Name}
				return nil
			})
		}
		if err != nil {
			r.forgetAllocations(all[i:])
			return err
		}
	}
	return nil
}

// forgetAllocations releases the devices of allocations that were not written.
func (r *run) forgetAllocations(all []rules.Reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, res := range all {
		if res.Allocation != nil {
			r.cluster.AssumeAllocation(res.UID, nil)
		}
	}
	r.loop.Add(r.changed(cluster.Change{ChangeKind: cluster.DevicesFreed})...)
}

// awaitDevices makes a pod wait for the binding conditions of its devices.
func (r *run) awaitDevices(d *decision) {
	r.mu.Lock()
	for _, res := range d.devices {
		if key := res.Namespace + "/" + res.Name; !slices.Contains(d.place.claims, key) {
			d.place.claims = append(d.place.claims, key)
		}
	}
	r.mu.Unlock()
	r.events.Eventf(d.pod.Pod, corev1.EventTypeNormal, "BindingConditionsPending",
		"waiting for binding conditions for device on node %s", d.node)
}

// ready reports whether the binding conditions of all devices of a reservation are true. It returns an error if they
// will not become true. The caller holds mu.
func (r *run) ready(place *reservation) (bool, error) {
	for _, key := range place.claims {
		claim := r.cluster.Devices.Claims[key]
		if claim == nil {
			return false, nil // created, but the watch does not show it yet
		}
		if ready, err := cluster.Ready(claim); !ready {
			return false, err
		}
	}
	return true, nil
}

// observeDeviceWait observes the end of a wait for devices.
func (r *run) observeDeviceWait(place *reservation, status string) {
	if !place.devices {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range place.claims {
		claim := r.cluster.Devices.Claims[key]
		if claim == nil || claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			r.metrics.waits.WithLabelValues(Component, result.Driver, status).Observe(r.deps.Clock.Since(place.since).Seconds())
			if len(result.BindingConditions) > 0 {
				r.metrics.conditional.WithLabelValues(Component, result.Driver, status).Inc()
			}
		}
	}
}

// createClaim creates the claim for a pod's extended resources, and deletes claims of an interrupted attempt.
func (r *run) createClaim(ctx context.Context, res *rules.Reservation) error {
	for _, old := range res.Stale {
		if err := r.deleteClaim(ctx, old); err != nil {
			return err
		}
	}
	claim := res.ResourceClaim.DeepCopy()
	claim.UID, claim.Finalizers = "", []string{resourcev1.Finalizer}
	created, err := r.deps.Client.Create(ctx, claim)
	r.metrics.claims.Add(claim, err)
	if err != nil {
		return err
	}
	made := created.(*resourcev1.ResourceClaim)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cluster.AssumeAllocation(res.UID, nil)
	r.cluster.AssumeAllocation(made.UID, res.Allocation)
	res.ResourceClaim = made
	return nil
}

// deleteClaim deletes a claim for extended resources with its allocation.
func (r *run) deleteClaim(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	_, err := client.Update(ctx, r.deps.Client, claim, "status", func(cur *resourcev1.ResourceClaim) error {
		if cur.UID != claim.UID {
			return errUnchanged
		}
		cur.Status = resourcev1.ResourceClaimStatus{}
		return nil
	})
	if ignore(err) != nil || err != nil && !apierrors.IsNotFound(err) {
		return ignore(err)
	}
	_, err = r.deps.Client.Delete(ctx, client.RefOf(claim),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID}})
	return ignore(err)
}

// reserveClaim writes the allocation of a claim and reserves the claim for the pod. It adds the finalizer before, so
// that a claim that is deleted meanwhile keeps its devices until they are released.
func (r *run) reserveClaim(ctx context.Context, pod *corev1.Pod, res rules.Reservation) error {
	claim := res.ResourceClaim
	if res.Allocation != nil && !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
		_, err := client.Update(ctx, r.deps.Client, claim, "", func(cur *resourcev1.ResourceClaim) error {
			if err := usable(cur, res); err != nil {
				return err
			}
			if !slices.Contains(cur.Finalizers, resourcev1.Finalizer) {
				cur.Finalizers = append(cur.Finalizers, resourcev1.Finalizer)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	_, err := client.Update(ctx, r.deps.Client, claim, "status", func(cur *resourcev1.ResourceClaim) error {
		if err := usable(cur, res); err != nil {
			return err
		}
		if res.Allocation != nil {
			cur.Status.Allocation = res.Allocation.DeepCopy()
		}
		if cur.Status.Allocation.AllocationTimestamp == nil {
			now := metav1.NewTime(r.deps.Clock.Now())
			cur.Status.Allocation.AllocationTimestamp = &now
		}
		if !resourceclaim.IsReservedForPod(pod, cur, false) {
			cur.Status.ReservedFor = append(cur.Status.ReservedFor,
				resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		}
		return nil
	})
	return err
}

// usable returns a conflict if the claim has changed in a way that invalidates the decision.
func usable(cur *resourcev1.ResourceClaim, res rules.Reservation) error {
	why := ""
	switch {
	case cur.UID != res.UID:
		why = "was replaced"
	case cur.DeletionTimestamp != nil:
		why = "is being deleted"
	case res.Allocation != nil && cur.Status.Allocation != nil:
		why = "got allocated elsewhere in the meantime"
	case res.Allocation == nil && cur.Status.Allocation == nil:
		why = "got deallocated elsewhere in the meantime"
	default:
		return nil
	}
	return apierrors.NewConflict(client.ResourceClaims.GroupResource(), cur.Name, fmt.Errorf("claim %s %s", cur.Name, why))
}

// deallocate removes the allocation of a claim whose devices are where its only pod cannot run. The change wakes the
// pod.
func (r *run) deallocate(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	if rules.Extended(claim) {
		return r.deleteClaim(ctx, claim)
	}
	_, err := client.Update(ctx, r.deps.Client, claim, "status", func(cur *resourcev1.ResourceClaim) error {
		if cur.UID != claim.UID || cur.ResourceVersion != claim.ResourceVersion {
			return errUnchanged
		}
		cur.Status.Allocation, cur.Status.ReservedFor, cur.Status.Devices = nil, nil, nil
		return nil
	})
	return ignore(err)
}
