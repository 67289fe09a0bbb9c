// Package rootca publishes the cluster's CA certificate in a ConfigMap of every active namespace, where pods find it.
package rootca

import (
	"context"
	"errors"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Name is upstream's name of the controller.
const Name = "root-ca-cert-publisher"

const (
	rootCA   = "kube-root-ca.crt"
	clientCA = "extension-apiserver-authentication"
	proxyCA  = "requestheader-client-ca-file"

	annotation = "kubernetes.io/description"
)

// published describes a ConfigMap that contains the certificate.
type published struct {
	name, file  string
	description string
	namespace   string            // empty: every one
	more        map[string]string // additional data
}

// all returns the ConfigMaps that Kubernetes publishes. The second one also contains the headers by which aggregated
// API servers authenticate this server and its users.
var all = []published{
	{name: rootCA, file: "ca.crt",
		description: "Holds the CA certificate that the API server's certificate is signed with, " +
			"for programs in pods that call the API server."},
	{name: clientCA, file: "client-ca-file", namespace: metav1.NamespaceSystem,
		description: "Holds the CA certificate that client certificates are signed with, " +
			"for API servers that authenticate the same users.",
		more: map[string]string{
			"requestheader-allowed-names":        `["front-proxy-client"]`,
			"requestheader-username-headers":     `["X-Remote-User"]`,
			"requestheader-uid-headers":          `["X-Remote-Uid"]`,
			"requestheader-group-headers":        `["X-Remote-Group"]`,
			"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`}},
}

// Config of the controller.
type Config struct {
	CA []byte // PEM; empty: not published
}

// Controller publishes the certificate.
type Controller struct {
	deps follow.Deps
	cfg  Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
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
			configMapsNamed(rootCA), configMapsNamed(clientCA),
		},
		Reconcile: c.reconcile,
	}).Run(ctx)
}

// configMapsNamed wakes the namespace whose ConfigMap of that name has changed.
func configMapsNamed(name string) follow.Source[string] {
	return follow.Source[string]{
		Selector: client.Selector{Resource: client.ConfigMaps, Fields: fields.OneTermEqualSelector("metadata.name", name)},
		Keys: follow.Plain(func(old, new client.Object) []string {
			if new == nil {
				return []string{old.GetNamespace()}
			}
			return []string{new.GetNamespace()}
		}),
	}
}

func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	ns, err := client.Get[*corev1.Namespace](ctx, c.deps.Client, "", name)
	if apierrors.IsNotFound(err) || (err == nil && ns.DeletionTimestamp != nil) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, p := range all {
		if p.namespace == "" || p.namespace == name {
			errs = append(errs, c.publish(ctx, p, name))
		}
	}
	return 0, errors.Join(errs...)
}

// publish creates a ConfigMap, or updates its content.
func (c *Controller) publish(ctx context.Context, p published, namespace string) error {
	data := map[string]string{p.file: string(c.cfg.CA)}
	if p.more != nil {
		data[proxyCA] = string(c.cfg.CA)
		maps.Copy(data, p.more)
	}
	current, err := client.Get[*corev1.ConfigMap](ctx, c.deps.Client, namespace, p.name)
	switch {
	case apierrors.IsNotFound(err):
		_, err = c.deps.Client.Create(ctx, &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.name,
				Annotations: map[string]string{annotation: p.description}},
			Data: data,
		})
		if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		return err
	case err != nil || maps.Equal(current.Data, data):
		return err
	}
	_, err = client.Update(ctx, c.deps.Client, current, "", func(cm *corev1.ConfigMap) error {
		cm.Data, cm.BinaryData = data, nil
		return nil
	})
	return err
}
