// Package rootca keeps the cluster's CA certificate in a ConfigMap of every
// active namespace, where pods find it.
package rootca

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/apiserver/client"
	"monopod/apiserver/follow"
)

// Name of the controller, upstream's.
const Name = "root-ca-cert-publisher"

const (
	configMap   = "kube-root-ca.crt"
	file        = "ca.crt"
	annotation  = "kubernetes.io/description"
	description = "Holds the CA certificate that the API server's certificate is signed with, " +
		"for programs in pods that call the API server."
)

// Config of the controller.
type Config struct {
	CA []byte // PEM; empty: publish nothing
}

// Controller publishes the certificate.
type Controller struct {
	deps follow.Deps
	cfg  Config
}

var _ follow.Controller = (*Controller)(nil)

// New makes the controller.
func New(deps follow.Deps, cfg Config) *Controller { return &Controller{deps: deps, cfg: cfg} }

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	if len(c.cfg.CA) == 0 {
		<-ctx.Done()
		return nil
	}
	return follow.New(c.deps, follow.Config[string]{
		Name: Name,
		Sources: []follow.Source[string]{
			{Selector: client.Selector{Resource: client.Namespaces}, Keys: follow.Plain(follow.OnNew)},
			{Selector: client.Selector{
				Resource: client.ConfigMaps,
				Fields:   fields.OneTermEqualSelector("metadata.name", configMap),
			}, Keys: follow.Plain(changed)},
		},
		Reconcile: c.reconcile,
	}).Run(ctx)
}

// changed wakes the namespace whose ConfigMap has changed.
func changed(old, new client.Object) []string {
	if new == nil {
		return []string{old.GetNamespace()}
	}
	return []string{new.GetNamespace()}
}

func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	ns, err := client.Get[*corev1.Namespace](ctx, c.deps.Client, "", name)
	if apierrors.IsNotFound(err) || (err == nil && ns.DeletionTimestamp != nil) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	current, err := client.Get[*corev1.ConfigMap](ctx, c.deps.Client, name, configMap)
	switch {
	case apierrors.IsNotFound(err):
		return 0, c.create(ctx, name)
	case err != nil || maps.Equal(current.Data, c.data()):
		return 0, err
	}
	_, err = client.Update(ctx, c.deps.Client, current, "", func(cm *corev1.ConfigMap) error {
		cm.Data, cm.BinaryData = c.data(), nil
		return nil
	})
	return 0, err
}

func (c *Controller) data() map[string]string { return map[string]string{file: string(c.cfg.CA)} }

func (c *Controller) create(ctx context.Context, namespace string) error {
	_, err := c.deps.Client.Create(ctx, &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: configMap,
			Annotations: map[string]string{annotation: description},
		},
		Data: c.data(),
	})
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
