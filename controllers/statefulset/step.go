package statefulset

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// ordered makes one step of OrderedReady. It creates pods from the lowest ordinal upwards, each when the previous one
// is available, then deletes surplus pods from the highest ordinal downwards, then replaces pods of old revisions. A
// pod that does not become available blocks all of this, even if the template has been fixed since: as in upstream, a
// user has to delete that pod.
func (r *run) ordered(ctx context.Context, v *syncState) error {
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

// firstUnavailable returns the condemned replica with the lowest ordinal that is not available.
func (v *syncState) firstUnavailable() *replica {
	for i := len(v.condemned) - 1; i >= 0; i-- {
		if !v.available(v.condemned[i]) {
			return v.condemned[i]
		}
	}
	return nil
}

// parallel makes one step of Parallel: all pods at once, within the limits of the rolling update.
func (r *run) parallel(ctx context.Context, v *syncState) error {
	_, err := owned.SlowStart(1, len(v.replicas), func(i int) error { return r.keep(ctx, v, v.replicas[i]) })
	if err != nil {
		return err
	}
	_, err = owned.SlowStart(1, len(v.condemned), func(i int) error {
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

// replace deletes the pods that a rolling update replaces. The next sync creates them again.
func (r *run) replace(ctx context.Context, v *syncState) error {
	var errs []error
	for _, rep := range v.outdated() {
		errs = append(errs, r.delete(ctx, v, rep))
	}
	return errors.Join(errs...)
}

// keep maintains a replica: it creates a missing pod, deletes a finished one, creates the missing claims of a pending
// one, and restores the labels and the owners of claims.
func (r *run) keep(ctx context.Context, v *syncState, rep *replica) error {
	switch {
	case rep.pod == nil:
		return r.create(ctx, v, rep)
	case rep.pod.DeletionTimestamp != nil:
		return r.retain(ctx, v, rep) // the new pod uses the same claims
	case podstate.Finished(rep.pod):
		if rep.pod.Status.Phase == corev1.PodFailed {
			// The deletion has a backoff, because the node may reject the next pod, too. Upstream does not wait.
			if wait := r.Failures.Backoff(
				owned.Place{Owner: v.set.UID, Generation: v.set.Generation, Name: rep.pod.Name}); wait > 0 {
				v.wait(wait)
				return nil
			}
		}
		return r.delete(ctx, v, rep)
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
