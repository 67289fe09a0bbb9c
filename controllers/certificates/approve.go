package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"monopod/apiserver/kit/follow"
)

// Allowed reports whether the user who created a request may create the subresource of
// certificatesigningrequests.
type Allowed func(ctx context.Context, by *certificatesv1.CertificateSigningRequestSpec, subresource string) (bool,
	error)

// NewApproving returns the controller that approves requests of nodes for their own client certificates.
func NewApproving(deps follow.Deps, allowed Allowed) *Controller {
	c := &Controller{deps: deps, name: Approving}
	c.work = func(ctx context.Context, r *request) (time.Duration, error) { return 0, c.approve(ctx, r, allowed) }
	return c
}

// recognizer describes requests that are approved if their creator may create the subresource.
type recognizer struct {
	matches     func(r *request, x *x509.CertificateRequest) bool
	subresource string
	message     string
}

func recognizers() []recognizer {
	return []recognizer{
		{isSelfNodeClient, "selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."},
		{isNodeClient, "nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."},
	}
}

// isNodeClient reports whether the request is for the client certificate of a node.
func isNodeClient(r *request, x *x509.CertificateRequest) bool {
	return r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName &&
		kubeletClient(x, r.Spec.Usages) == nil
}

// isSelfNodeClient reports whether a node requests its own client certificate.
func isSelfNodeClient(r *request, x *x509.CertificateRequest) bool {
	return isNodeClient(r, x) && r.Spec.Username == x.Subject.CommonName
}

func (c *Controller) approve(ctx context.Context, r *request, allowed Allowed) error {
	if len(r.Status.Certificate) > 0 || find(r, certificatesv1.CertificateApproved) != nil ||
		find(r, certificatesv1.CertificateDenied) != nil {
		return nil
	}
	x, err := parse(r)
	if err != nil {
		return nil // csrsigning marks an invalid request as failed
	}
	for _, known := range recognizers() {
		if !known.matches(r, x) {
			continue
		}
		ok, err := allowed(ctx, &r.Spec, known.subresource)
		if err != nil {
			return fmt.Errorf("check the permission of %s: %w", r.Spec.Username, err)
		}
		if ok {
			return c.add(ctx, r, "approval", certificatesv1.CertificateApproved, "AutoApproved", known.message)
		}
	}
	return nil
}
