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
func (r *run) ordered(ctx context.Context, st *syncState) error {
	for _, rep := range st.replicas {
		created := rep.pod == nil
		if err := r.keep(ctx, st, rep); err != nil || created || !st.available(rep) {
			return err
		}
	}
	for _, rep := range st.condemned {
		if err := r.retain(ctx, st, rep); err != nil {
			return err
		}
	}
	if len(st.condemned) > 0 {
		highest := st.condemned[0]
		if highest.pod.DeletionTimestamp != nil || !st.available(highest) && highest != st.firstUnavailable() {
			return nil
		}
		return r.delete(ctx, st, highest)
	}
	return r.replace(ctx, st)
}

// firstUnavailable returns the condemned replica with the lowest ordinal that is not available.
func (st *syncState) firstUnavailable() *replica {
	for i := len(st.condemned) - 1; i >= 0; i-- {
		if !st.available(st.condemned[i]) {
			return st.condemned[i]
		}
	}
	return nil
}

// parallel makes one step of Parallel: all pods at once, within the limits of the rolling update.
func (r *run) parallel(ctx context.Context, st *syncState) error {
	_, err := owned.SlowStart(1, len(st.replicas), func(i int) error { return r.keep(ctx, st, st.replicas[i]) })
	if err != nil {
		return err
	}
	_, err = owned.SlowStart(1, len(st.condemned), func(i int) error {
		rep := st.condemned[i]
		if err := r.retain(ctx, st, rep); err != nil || rep.pod.DeletionTimestamp != nil {
			return err
		}
		return r.delete(ctx, st, rep)
	})
	if err != nil {
		return err
	}
	return r.replace(ctx, st)
}

// replace deletes the pods that a rolling update replaces. The next sync creates them again.
func (r *run) replace(ctx context.Context, st *syncState) error {
	var errs []error
	for _, rep := range st.outdated() {
		errs = append(errs, r.delete(ctx, st, rep))
	}
	return errors.Join(errs...)
}

// keep maintains a replica: it creates a missing pod, deletes a finished one, creates the missing claims of a pending
// one, and restores the labels and the owners of claims.
func (r *run) keep(ctx context.Context, st *syncState, rep *replica) error {
	switch {
	case rep.pod == nil:
		return r.create(ctx, st, rep)
	case rep.pod.DeletionTimestamp != nil:
		return r.retain(ctx, st, rep) // the new pod uses the same claims
	case podstate.Finished(rep.pod):
		if rep.pod.Status.Phase == corev1.PodFailed {
			// The deletion has a backoff, because the node may reject the next pod, too. Upstream does not wait.
			if wait := r.Failures.Backoff(
				owned.Place{Owner: st.set.UID, Generation: st.set.Generation, Name: rep.pod.Name}); wait > 0 {
				st.wait(wait)
				return nil
			}
		}
		return r.delete(ctx, st, rep)
	}
	if rep.pod.Status.Phase == corev1.PodPending {
		if err := r.createClaims(ctx, st, rep); err != nil {
			return err
		}
	}
	if err := r.identify(ctx, st, rep); err != nil {
		return err
	}
	return r.retain(ctx, st, rep)
}
