package owned

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/client"
	"monopod/apiserver/follow"
)

// Owner returns the key of the owner of type T that ref names, if ref is of that kind
// and the owner exists with the same UID.
func Owner[T client.Object](ctx context.Context, c client.Client, kind, namespace string, ref *metav1.OwnerReference) ([]follow.Key, error) {
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

// Candidates returns the keys of the owners of type T that would adopt an orphan. An
// object without labels has none.
func Candidates[T client.Object](ctx context.Context, c client.Client, orphan client.Object, selector func(owner T) *metav1.LabelSelector) ([]follow.Key, error) {
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
