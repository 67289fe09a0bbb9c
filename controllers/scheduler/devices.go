package scheduler

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"monopod/apiserver/client"
	"monopod/controllers/scheduler/cluster"
	"monopod/controllers/scheduler/rules"
)

// pend keeps other pods from getting the devices of decided allocations. The caller holds mu.
func (r *run) pend(all []rules.Reservation) {
	for _, res := range all {
		if res.Allocation != nil {
			r.cluster.Pend(res.UID, res.Allocation)
		}
	}
}

// reserve writes the allocations and reservations of a pod's resource claims. What is written when it fails stays: the claims are the
// pod's, and the next attempt goes on from there.
func (r *run) reserve(ctx context.Context, pod *corev1.Pod, all []rules.Reservation) error {
	for i := range all {
		if err := r.reserveOne(ctx, pod, all[i]); err != nil {
			r.unpend(all[i:])
			return err
		}
	}
	return nil
}

// unpend frees the devices of allocations that were not written.
func (r *run) unpend(all []rules.Reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, res := range all {
		if res.Allocation != nil {
			r.cluster.Pend(res.UID, nil)
		}
	}
	r.loop.Add(r.changed(cluster.Change{What: cluster.DevicesFreed})...)
}

// reserveOne adds the finalizer before the allocation, so that a claim that is deleted at the same moment keeps its devices until they are
// released.
func (r *run) reserveOne(ctx context.Context, pod *corev1.Pod, res rules.Reservation) error {
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
		if !resourceclaim.IsReservedForPod(pod, cur, false) {
			cur.Status.ReservedFor = append(cur.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		}
		return nil
	})
	return err
}

// usable returns a conflict if the claim is no longer what the decision was about.
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

// deallocate gives the devices of a claim back that are where its only pod cannot run. The change wakes the pod.
func (r *run) deallocate(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	_, err := client.Update(ctx, r.deps.Client, claim, "status", func(cur *resourcev1.ResourceClaim) error {
		if cur.UID != claim.UID || cur.ResourceVersion != claim.ResourceVersion {
			return errUnchanged
		}
		cur.Status.Allocation, cur.Status.ReservedFor, cur.Status.Devices = nil, nil, nil
		return nil
	})
	return ignore(err)
}
