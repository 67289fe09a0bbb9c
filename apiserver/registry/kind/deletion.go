package kind

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxGrace is the maximum grace period in seconds: a hundred years. A longer one would overflow time.Duration.
const maxGrace = 100 * 365 * 24 * 60 * 60

// GraceFor returns the grace period of a deletion in seconds.
func (r *Resource) GraceFor(cur Object, requested *int64) int64 {
	if r.Grace == nil {
		return 0
	}
	if requested != nil && *requested < 0 {
		requested = new(int64(1)) // as upstream does
	}
	if requested == nil && cur.GetDeletionTimestamp() != nil {
		requested = cur.GetDeletionGracePeriodSeconds() // a repeated request without a grace period changes nothing
	}
	return min(r.Grace(cur, requested), maxGrace)
}

// FinalizersFor returns the object's finalizers with those of the garbage collector for the propagation policy.
func (r *Resource) FinalizersFor(cur Object, opts metav1.DeleteOptions) []string {
	policy := opts.PropagationPolicy
	if policy == nil && opts.OrphanDependents != nil { // the deprecated option
		policy = new(metav1.DeletePropagationBackground)
		if *opts.OrphanDependents {
			policy = new(metav1.DeletePropagationOrphan)
		}
	}
	out := slices.Clone(cur.GetFinalizers())
	if r.Childless {
		return slices.DeleteFunc(out, forDependents)
	}
	if policy == nil && r.Orphans && !slices.ContainsFunc(out, forDependents) {
		policy = new(metav1.DeletePropagationOrphan)
	}
	if policy == nil {
		return out
	}
	out = slices.DeleteFunc(out, forDependents)
	switch *policy {
	case metav1.DeletePropagationOrphan:
		out = append(out, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	return out
}

// forDependents reports whether the finalizer belongs to the garbage collector.
func forDependents(finalizer string) bool {
	return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
}
