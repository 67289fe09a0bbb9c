package kind

import (
	"k8s.io/apimachinery/pkg/api/equality"
)

// SpecAndStatus returns the Prepare of a kind with spec and status. A new object has generation 1 and no status. A
// write of the status keeps the spec; all other writes keep the status and increment the generation if the spec
// changes. halves returns the addresses of spec and status. fill is the kind's Default, or nil: an omitted default is
// not a change.
func SpecAndStatus[S, T any](halves func(Object) (*S, *T),
	fill func(Object)) func(next, cur Object, subresource string) {
	restore := WithoutGeneration(halves)
	return func(next, cur Object, subresource string) {
		restore(next, cur, subresource)
		switch {
		case cur == nil:
			next.SetGeneration(1)
		case subresource != "delete" && subresource != "status":
			if fill != nil {
				fill(next)
			}
			spec, _ := halves(next)
			if old, _ := halves(cur); !equality.Semantic.DeepEqual(spec, old) {
				next.SetGeneration(cur.GetGeneration() + 1)
			}
		}
	}
}

// WithoutGeneration is SpecAndStatus for a kind without a generation.
func WithoutGeneration[S, T any](halves func(Object) (*S, *T)) func(next, cur Object, subresource string) {
	return func(next, cur Object, subresource string) {
		spec, status := halves(next)
		if cur == nil {
			*status = *new(T)
			return
		}
		oldSpec, oldStatus := halves(cur.DeepCopyObject().(Object))
		switch subresource {
		case "delete":
		case "status":
			*spec = *oldSpec
		default:
			*status = *oldStatus
		}
	}
}

// SpecOnly returns the Prepare of a kind without a status: the generation is 1, and increases when the spec changes.
func SpecOnly[S any](spec func(Object) *S, fill func(Object)) func(next, cur Object, subresource string) {
	return func(next, cur Object, subresource string) {
		switch {
		case cur == nil:
			next.SetGeneration(1)
		case subresource == "":
			if fill != nil {
				fill(next)
			}
			if !equality.Semantic.DeepEqual(spec(next), spec(cur)) {
				next.SetGeneration(cur.GetGeneration() + 1)
			}
		}
	}
}

// KeepMetadata restores the metadata that updates cannot change.
func KeepMetadata(next, cur Object) {
	next.SetUID(cur.GetUID())
	next.SetResourceVersion(cur.GetResourceVersion())
	next.SetGeneration(cur.GetGeneration())
	next.SetCreationTimestamp(cur.GetCreationTimestamp())
	next.SetDeletionTimestamp(cur.GetDeletionTimestamp())
	next.SetDeletionGracePeriodSeconds(cur.GetDeletionGracePeriodSeconds())
	next.SetSelfLink("")
}
