package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// The periods after which requests are deleted are upstream's.
const (
	decidedStays = time.Hour
	pendingStays = 24 * time.Hour
)

// NewCleaning returns the controller that deletes old requests, whose certificates the clients have fetched by then.
func NewCleaning(deps follow.Deps) *Controller {
	c := &Controller{deps: deps, name: Cleaning}
	c.work = c.clean
	return c
}

func (c *Controller) clean(ctx context.Context, r *request) (time.Duration, error) {
	if left := end(r).Sub(c.deps.Clock.Now()); left > 0 {
		return left, nil
	}
	_, err := c.deps.Client.Delete(ctx, client.RefOf(r),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID, ResourceVersion: &r.ResourceVersion}})
	return 0, err
}

// end returns when the request is deleted: 24 hours after its creation if it is pending, 1 hour after a decision, or
// when its certificate expires.
func end(r *request) time.Time {
	at, decided := r.CreationTimestamp.Add(pendingStays), false
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved,
		certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		c := find(r, t)
		if c == nil {
			continue
		}
		if until := c.LastUpdateTime.Add(decidedStays); !decided || until.Before(at) {
			at, decided = until, true
		}
	}
	if block, _ := pem.Decode(r.Status.Certificate); block != nil {
		if issued, err := x509.ParseCertificate(block.Bytes); err == nil && issued.NotAfter.Before(at) {
			at = issued.NotAfter
		}
	}
	return at
}
