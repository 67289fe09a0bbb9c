// Package owned finds and manages the objects that a controller owns: pods of a ReplicaSet, ReplicaSets of a
// Deployment.
//
//   - Index: objects by the owner that controls them, as seen by the watches.
//   - Adopter: keeps, adopts and releases objects for an owner.
//   - Changed, Keys, Owner, Candidates: the owners that a change of an object wakes.
//   - Pods, NewPod, SlowStart: creation and deletion of an owner's pods.
//   - UpdateStatus: the write of an owner's status.
//   - Failures: the backoff before a failed pod is replaced.
//   - Hash: names of objects that are derived from a template.
package owned

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Index contains objects by the UID of their controller, and orphans by namespace. It is as recent as the watch.
type Index[T client.Object] struct {
	mu      sync.RWMutex // guards the fields below
	owned   map[types.UID]set[T]
	orphans map[string]set[T]
}

type set[T any] map[types.UID]T

// NewIndex returns an empty Index.
func NewIndex[T client.Object]() *Index[T] {
	return &Index[T]{owned: map[types.UID]set[T]{}, orphans: map[string]set[T]{}}
}

// Change replaces old by new, either of which may be nil; both are of type T.
func (x *Index[T]) Change(old, new client.Object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old != nil {
		x.remove(old)
	}
	if new != nil {
		x.add(new.(T))
	}
}

func (x *Index[T]) add(obj T) {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		put(x.owned, owner.UID, obj)
		return
	}
	put(x.orphans, obj.GetNamespace(), obj)
}

func (x *Index[T]) remove(obj client.Object) {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		drop(x.owned, owner.UID, obj.GetUID())
		return
	}
	drop(x.orphans, obj.GetNamespace(), obj.GetUID())
}

func put[K comparable, T client.Object](sets map[K]set[T], k K, obj T) {
	if sets[k] == nil {
		sets[k] = set[T]{}
	}
	sets[k][obj.GetUID()] = obj
}

func drop[K comparable, T any](sets map[K]set[T], k K, uid types.UID) {
	delete(sets[k], uid)
	if len(sets[k]) == 0 {
		delete(sets, k)
	}
}

// Of returns the objects that owner controls, in no order.
func (x *Index[T]) Of(owner client.Object) []T {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return values(nil, x.owned[owner.GetUID()])
}

// OfOrOrphan returns the objects that owner controls, and the orphans in its namespace.
func (x *Index[T]) OfOrOrphan(owner client.Object) []T {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return values(values(nil, x.owned[owner.GetUID()]), x.orphans[owner.GetNamespace()])
}

// Present is OfOrOrphan for a Reconcile that must not miss objects that it created or changed before. It lists the
// owner's namespace if the index may be older than those writes. The result may include objects of other owners.
func (x *Index[T]) Present(ctx context.Context, c client.Client, owner client.Object) ([]T, error) {
	if follow.SeesOwnWrites(ctx) {
		return x.OfOrOrphan(owner), nil
	}
	return client.List[T](ctx, c, client.Selector{Namespace: owner.GetNamespace()})
}

func values[T any](to []T, of set[T]) []T {
	for _, obj := range of {
		to = append(to, obj)
	}
	return to
}
