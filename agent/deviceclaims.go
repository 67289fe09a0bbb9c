package agent

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/agent/resources/dra"
	"monopod/apiserver/kit/client"
)

// deviceClaims is the API of dynamic resource allocation for one node.
type deviceClaims struct {
	client client.Client
	node   string
}

var _ dra.API = deviceClaims{}

// Claim implements dra.API.
func (d deviceClaims) Claim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	return client.Get[*resourcev1.ResourceClaim](ctx, d.client, namespace, name)
}

// Slices implements dra.API.
func (d deviceClaims) Slices(ctx context.Context, driver string) ([]*resourcev1.ResourceSlice, error) {
	of := fields.Set{resourcev1.ResourceSliceSelectorNodeName: d.node}
	if driver != "" {
		of[resourcev1.ResourceSliceSelectorDriver] = driver
	}
	return client.List[*resourcev1.ResourceSlice](ctx, d.client, client.Selector{Fields: of.AsSelector()})
}

// RemoveSlice implements dra.API.
func (d deviceClaims) RemoveSlice(ctx context.Context, slice *resourcev1.ResourceSlice) error {
	_, err := d.client.Delete(ctx, client.RefOf(slice),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &slice.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
