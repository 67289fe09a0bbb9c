package owned

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/client"
)

// UpdateStatus changes the status of an owner. It writes nothing and returns nil if the owner was deleted or replaced.
func UpdateStatus[T client.Object](ctx context.Context, c client.Client, owner T, change func(cur T)) error {
	_, err := client.Update(ctx, c, owner, "status", func(cur T) error {
		if cur.GetUID() != owner.GetUID() {
			return apierrors.NewNotFound(client.RefOf(owner).Resource.GroupResource(), owner.GetName())
		}
		change(cur)
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
