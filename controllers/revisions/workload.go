package revisions

import (
	"context"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/owned"
)

// Workload is the part that the controllers of DaemonSets and StatefulSets share: the pods and revisions of owners of
// type T.
type Workload[T client.Object] struct {
	Adopter   owned.Adopter[*corev1.Pod]
	Keeper    Keeper
	Pods      *owned.Index[*corev1.Pod]
	Revisions *owned.Index[*appsv1.ControllerRevision]
	Failures  *owned.Failures

	deps follow.Deps
	kind Kind[T]
}

// Kind describes the kind of a Workload.
type Kind[T client.Object] struct {
	Name      string // DaemonSet
	Resource  schema.GroupVersionResource
	HashLabel string // of its revisions
	Selector  func(T) *metav1.LabelSelector
	// FailureGeneration returns the generation whose failures are forgotten when the object changes.
	FailureGeneration func(T) int64
}

// NewWorkload returns an empty Workload.
func NewWorkload[T client.Object](deps follow.Deps, k Kind[T]) *Workload[T] {
	owner := appsv1.SchemeGroupVersion.WithKind(k.Name)
	return &Workload[T]{
		Adopter: owned.Adopter[*corev1.Pod]{Client: deps.Client, Kind: owner,
			Adoptive: func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil }},
		Keeper: Keeper{Client: deps.Client, Kind: owner, HashLabel: k.HashLabel},
		Pods:   owned.NewIndex[*corev1.Pod](), Revisions: owned.NewIndex[*appsv1.ControllerRevision](),
		Failures: owned.NewFailures(deps.Clock), deps: deps, kind: k,
	}
}

// Sources wake an object when the object, one of its revisions or one of its pods changes.
func (w *Workload[T]) Sources() []follow.Source[follow.Key] {
	return []follow.Source[follow.Key]{
		{Selector: client.Selector{Resource: w.kind.Resource}, Keys: follow.Plain(w.changed)},
		{Selector: client.Selector{Resource: client.ControllerRevisions},
			Keys: owned.Keys(w.deps.Client, w.Revisions, w.kind.Name, w.kind.Selector)},
		{Selector: client.Selector{Resource: client.Pods},
			Keys: owned.Keys(w.deps.Client, w.Pods, w.kind.Name, w.kind.Selector)},
	}
}

// changed wakes an object, and forgets the failures of earlier generations.
func (w *Workload[T]) changed(old, next client.Object) []follow.Key {
	if next == nil {
		w.Failures.Forget(old.GetUID(), math.MaxInt64)
	} else {
		w.Failures.Forget(next.GetUID(), w.kind.FailureGeneration(next.(T)))
	}
	return follow.OnAny(old, next)
}

// Begin returns the object of a key and its selector. ok is false if there is nothing to do: the object does not exist,
// it is being deleted (the garbage collector may have deleted its revisions already), or its selector selects nothing.
func (w *Workload[T]) Begin(ctx context.Context, key follow.Key) (obj T, selector labels.Selector, ok bool, err error) {
	obj, err = client.Get[T](ctx, w.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) || err == nil && obj.GetDeletionTimestamp() != nil {
		return obj, nil, false, nil
	}
	if err != nil {
		return obj, nil, false, err
	}
	selector, err = metav1.LabelSelectorAsSelector(w.kind.Selector(obj))
	if err != nil || selector.Empty() {
		return obj, nil, false, nil // the API rejects such a selector; a retry would not help
	}
	return obj, selector, true, nil
}
