package kind

import (
	"k8s.io/apimachinery/pkg/api/equality"
)

// SpecAndStatus makes the Prepare of a kind that has both: a new object is at
// generation 1 and has no status; a write of the status leaves the spec as it
// was, every other write the status, and moves the generation when the spec
// changed. halves gives the addresses of the two in an object; fill is the kind's
// Default, because leaving out a default is not a change.
func SpecAndStatus[S, T any](halves func(Object) (*S, *T),
	fill func(Object)) func(next, cur Object, subresource string) {
	return func(next, cur Object, subresource string) {
		spec, status := halves(next)
		if cur == nil {
			*status = *new(T)
			next.SetGeneration(1)
			return
		}
		oldSpec, oldStatus := halves(cur.DeepCopyObject().(Object))
		switch subresource {
		case "delete":
		case "status":
			*spec = *oldSpec
		default:
			*status = *oldStatus
			fill(next)
			if !equality.Semantic.DeepEqual(spec, oldSpec) {
				next.SetGeneration(cur.GetGeneration() + 1)
			}
		}
	}
}

// KeepMetadata restores the metadata that no update changes.
func KeepMetadata(next, cur Object) {
	next.SetUID(cur.GetUID())
	next.SetResourceVersion(cur.GetResourceVersion())
	next.SetGeneration(cur.GetGeneration())
	next.SetCreationTimestamp(cur.GetCreationTimestamp())
	next.SetDeletionTimestamp(cur.GetDeletionTimestamp())
	next.SetDeletionGracePeriodSeconds(cur.GetDeletionGracePeriodSeconds())
	next.SetSelfLink("")
}
