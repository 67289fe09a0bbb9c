package owned

import (
	"context"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Changed returns the keys of the owners of type T that a change of an object wakes: its controller, its previous
// controller, and owners that may adopt it. old and new are as in follow.Source; selector returns an owner's selector.
func Changed[T client.Object](ctx context.Context, c client.Client, kind string,
	selector func(owner T) *metav1.LabelSelector, old, new client.Object) ([]follow.Key, error) {
	var before, after *metav1.OwnerReference
	if old != nil {
		before = metav1.GetControllerOfNoCopy(old)
	}
	if new != nil {
		after = metav1.GetControllerOfNoCopy(new)
	}
	var keys []follow.Key
	if before != nil && (after == nil || after.UID != before.UID) {
		var err error
		if keys, err = Owner[T](ctx, c, kind, old.GetNamespace(), before); err != nil {
			return nil, err
		}
	}
	var more []follow.Key
	var err error
	switch {
	case after != nil:
		more, err = Owner[T](ctx, c, kind, new.GetNamespace(), after)
	case new != nil && (old == nil || before != nil || !maps.Equal(old.GetLabels(), new.GetLabels())):
		more, err = Candidates(ctx, c, new, selector)
	}
	return append(keys, more...), err
}

// Keys returns the Keys function of a follow.Source: it updates the index, and wakes the owners that Changed returns.
// It may be called again after an error.
func Keys[O, T client.Object](c client.Client, index *Index[T], kind string,
	selector func(owner O) *metav1.LabelSelector) func(ctx context.Context, old, new client.Object) ([]follow.Key, error) {
	return func(ctx context.Context, old, new client.Object) ([]follow.Key, error) {
		index.Change(old, new)
		return Changed(ctx, c, kind, selector, old, new)
	}
}

// Owner returns the key of the owner of type T that ref refers to, if an object of that kind and UID exists.
func Owner[T client.Object](ctx context.Context, c client.Client, kind, namespace string,
	ref *metav1.OwnerReference) ([]follow.Key, error) {
	if ref.Kind != kind {
		return nil, nil
	}
	owner, err := client.Get[T](ctx, c, namespace, ref.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case owner.GetUID() != ref.UID:
		return nil, nil
	}
	return []follow.Key{follow.KeyOf(owner)}, nil
}

// Candidates returns the keys of the owners of type T that would adopt an orphan. An object without labels has none.
func Candidates[T client.Object](ctx context.Context, c client.Client, orphan client.Object,
	selector func(owner T) *metav1.LabelSelector) ([]follow.Key, error) {
	if len(orphan.GetLabels()) == 0 {
		return nil, nil
	}
	owners, err := client.List[T](ctx, c, client.Selector{Namespace: orphan.GetNamespace()})
	if err != nil {
		return nil, err
	}
	var keys []follow.Key
	for _, owner := range owners {
		s, err := metav1.LabelSelectorAsSelector(selector(owner))
		if err == nil && !s.Empty() && s.Matches(labels.Set(orphan.GetLabels())) {
			keys = append(keys, follow.KeyOf(owner))
		}
	}
	return keys, nil
}
