package statefulset

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// ordered is one step of OrderedReady. Pods are created from the lowest ordinal on, each
// when the one before it is available; then those that are too many end, from the highest
// on; then those of old revisions. A pod that does not become available stops all this,
// also if it has an old template that was repaired since: somebody has to delete it, as
// in upstream.
func (r *run) ordered(ctx context.Context, v *view) error {
	for _, rep := range v.replicas {
		created := rep.pod == nil
		if err := r.keep(ctx, v, rep); err != nil || created || !v.available(rep) {
			return err
		}
	}
	for _, rep := range v.condemned {
		if err := r.retain(ctx, v, rep); err != nil {
			return err
		}
	}
	if len(v.condemned) > 0 {
		highest := v.condemned[0]
		if highest.pod.DeletionTimestamp != nil || !v.available(highest) && highest != v.firstUnavailable() {
			return nil
		}
		return r.delete(ctx, v, highest)
	}
	return r.replace(ctx, v)
}

// firstUnavailable is the replica with the lowest ordinal, of those that are too many,
// that is not available.
func (v *view) firstUnavailable() *replica {
	for i := len(v.condemned) - 1; i >= 0; i-- {
		if !v.available(v.condemned[i]) {
			return v.condemned[i]
		}
	}
	return nil
}

// parallel is one step of Parallel: all at once, within the limits of the rolling update.
func (r *run) parallel(ctx context.Context, v *view) error {
	_, err := owned.SlowStart(len(v.replicas), func(i int) error { return r.keep(ctx, v, v.replicas[i]) })
	if err != nil {
		return err
	}
	_, err = owned.SlowStart(len(v.condemned), func(i int) error {
		rep := v.condemned[i]
		if err := r.retain(ctx, v, rep); err != nil || rep.pod.DeletionTimestamp != nil {
			return err
		}
		return r.delete(ctx, v, rep)
	})
	if err != nil {
		return err
	}
	return r.replace(ctx, v)
}

// replace deletes the pods that a rolling update replaces. They are created again after
// the deletion.
func (r *run) replace(ctx context.Context, v *view) error {
	var errs []error
	for _, rep := range v.outdated() {
		errs = append(errs, r.delete(ctx, v, rep))
	}
	return errors.Join(errs...)
}

// keep makes a replica be there: it creates the pod, ends one that has finished, creates
// claims that a pending pod lacks, and restores labels and the owners of claims.
func (r *run) keep(ctx context.Context, v *view, rep *replica) error {
	switch {
	case rep.pod == nil:
		return r.create(ctx, v, rep)
	case rep.pod.DeletionTimestamp != nil:
		return r.retain(ctx, v, rep) // its successor is to have the same claims
	case podstate.Finished(rep.pod):
		return r.end(ctx, v, rep)
	}
	if rep.pod.Status.Phase == corev1.PodPending {
		if err := r.createClaims(ctx, v, rep); err != nil {
			return err
		}
	}
	if err := r.identify(ctx, v, rep); err != nil {
		return err
	}
	return r.retain(ctx, v, rep)
}

// end deletes a pod that has finished. One that has failed waits, longer each time: its
// node may reject the next one, too. Upstream does not wait.
func (r *run) end(ctx context.Context, v *view, rep *replica) error {
	if rep.pod.Status.Phase == corev1.PodFailed {
		if wait := r.failures.Tried(owned.Place{Owner: v.set.UID, Generation: v.set.Generation, Name: rep.pod.Name}); wait > 0 {
			v.wait(wait)
			return nil
		}
	}
	return r.delete(ctx, v, rep)
}
