package volumes

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/apiserver/kit/client"
)

// Objects reads the ConfigMaps and Secrets of one namespace, and ClusterTrustBundles, for one step of a worker.
type Objects struct {
	Context   context.Context
	Client    client.Client
	Namespace string
}

// ConfigMap returns the ConfigMap with that name; nil if it does not exist.
func (o Objects) ConfigMap(name string) (*corev1.ConfigMap, error) {
	cm, err := client.Get[*corev1.ConfigMap](o.Context, o.Client, o.Namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return cm, err
}

// Bundles returns the ClusterTrustBundle with that name, if it exists; without a name, all of the signer.
func (o Objects) Bundles(ctx context.Context, name, signer string) ([]*certificatesv1.ClusterTrustBundle, error) {
	if name == "" {
		return client.List[*certificatesv1.ClusterTrustBundle](ctx, o.Client,
			client.Selector{Fields: fields.OneTermEqualSelector("spec.signerName", signer)})
	}
	b, err := client.Get[*certificatesv1.ClusterTrustBundle](ctx, o.Client, "", name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return []*certificatesv1.ClusterTrustBundle{b}, err
}

// Secret returns the Secret with that name; nil if it does not exist.
func (o Objects) Secret(name string) (*corev1.Secret, error) {
	s, err := client.Get[*corev1.Secret](o.Context, o.Client, o.Namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return s, err
}
