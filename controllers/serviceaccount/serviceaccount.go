// Package serviceaccount creates a ServiceAccount "default" in every active namespace.
package serviceaccount

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Name of the controller.
const Name = "serviceaccount"

const account = "default"

// Controller creates missing accounts.
type Controller struct{ deps follow.Deps }

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps) *Controller { return &Controller{deps: deps} }

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	return follow.New(c.deps, follow.Config[string]{
		Name: Name,
		Sources: []follow.Source[string]{
			{Selector: client.Selector{Resource: client.Namespaces}, Keys: follow.Plain(follow.OnNew)},
			{Selector: client.Selector{
				Resource: client.ServiceAccounts,
				Fields:   fields.OneTermEqualSelector("metadata.name", account),
			}, Keys: follow.Plain(onAccount)},
		},
		Reconcile: c.reconcile,
	}).Run(ctx)
}

// onAccount wakes the namespace whose account was deleted.
func onAccount(old, new client.Object) []string {
	if new == nil {
		return []string{old.GetNamespace()}
	}
	return nil
}

func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	ns, err := client.Get[*corev1.Namespace](ctx, c.deps.Client, "", name)
	if apierrors.IsNotFound(err) || (err == nil && ns.DeletionTimestamp != nil) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	_, err = client.Get[*corev1.ServiceAccount](ctx, c.deps.Client, name, account)
	if !apierrors.IsNotFound(err) {
		return 0, err
	}
	_, err = c.deps.Client.Create(ctx, &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: account},
	})
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return 0, nil
	}
	return 0, err
}
