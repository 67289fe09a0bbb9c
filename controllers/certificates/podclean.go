package certificates

import (
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// podRequestStays is how long a PodCertificateRequest is kept, even if it failed; the kubelet has read the certificate
// by then. The value is upstream's.
const podRequestStays = 15 * time.Minute

// PodCleaner deletes old PodCertificateRequests.
type PodCleaner struct{ deps follow.Deps }

var _ follow.Controller = (*PodCleaner)(nil)

// NewPodCleaning returns a PodCleaner.
func NewPodCleaning(deps follow.Deps) *PodCleaner { return &PodCleaner{deps} }

// Name implements follow.Controller.
func (c *PodCleaner) Name() string { return PodCleaning }

// Run implements follow.Controller.
func (c *PodCleaner) Run(ctx context.Context) error {
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name: PodCleaning,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.PodCertificateRequests}, Keys: follow.Plain(onRequest)},
		},
		Reconcile: c.clean,
	}).Run(ctx)
}

func (c *PodCleaner) clean(ctx context.Context, key follow.Key) (time.Duration, error) {
	r, err := client.Get[*certificatesv1.PodCertificateRequest](ctx, c.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) || err == nil && r.DeletionTimestamp != nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if left := r.CreationTimestamp.Add(podRequestStays).Sub(c.deps.Clock.Now()); left > 0 {
		return left, nil
	}
	_, err = c.deps.Client.Delete(ctx, client.RefOf(r),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	return 0, err
}
