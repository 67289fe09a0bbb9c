// Package trustbundle publishes the certificate authority of the API server as a ClusterTrustBundle, which pods can
// mount.
package trustbundle

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Name is upstream's name of the controller.
const Name = "kube-apiserver-serving-clustertrustbundle-publisher-controller"

// signer is the signer name of the API server's certificate.
const signer = "kubernetes.io/kube-apiserver-serving"

// Config of the controller.
type Config struct {
	CA []byte // PEM; empty: not published
}

// Controller publishes the bundle.
type Controller struct {
	deps follow.Deps
	cfg  Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, cfg Config) *Controller { return &Controller{deps: deps, cfg: cfg} }

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// bundles selects the ClusterTrustBundles of the signer.
func bundles() client.Selector {
	return client.Selector{Resource: client.ClusterTrustBundles,
		Fields: fields.OneTermEqualSelector("spec.signerName", signer)}
}

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	if len(c.cfg.CA) == 0 {
		<-ctx.Done()
		return nil
	}
	return follow.New(c.deps, follow.Config[string]{
		Name: Name, Start: []string{signer},
		Sources: []follow.Source[string]{{Selector: bundles(),
			Keys: follow.Plain(func(_, _ client.Object) []string { return []string{signer} })}},
		Reconcile: func(ctx context.Context, _ string) (time.Duration, error) { return 0, c.publish(ctx) },
	}).Run(ctx)
}

// wanted returns the bundle. As in upstream, its name depends on its content: a new authority has a new bundle.
func (c *Controller) wanted() *certificatesv1.ClusterTrustBundle {
	sum := sha256.Sum256(c.cfg.CA)
	return &certificatesv1.ClusterTrustBundle{
		TypeMeta:   metav1.TypeMeta{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "ClusterTrustBundle"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s:%x", strings.ReplaceAll(signer, "/", ":"), sum[:12])},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: string(c.cfg.CA)},
	}
}

// publish creates the bundle, or updates its content, and deletes all others of the signer.
func (c *Controller) publish(ctx context.Context) error {
	all, err := client.List[*certificatesv1.ClusterTrustBundle](ctx, c.deps.Client, bundles())
	if err != nil {
		return err
	}
	wanted := c.wanted()
	var errs []error
	found := false
	for _, is := range all {
		switch {
		case is.Name != wanted.Name:
			_, err = c.deps.Client.Delete(ctx, client.RefOf(is),
				metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &is.UID}})
		case is.Spec != wanted.Spec:
			found = true
			_, err = client.Update(ctx, c.deps.Client, is, "", func(b *certificatesv1.ClusterTrustBundle) error {
				b.Spec = wanted.Spec
				return nil
			})
		default:
			found = true
			continue
		}
		if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	if !found {
		if _, err := c.deps.Client.Create(ctx, wanted); !apierrors.IsAlreadyExists(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
