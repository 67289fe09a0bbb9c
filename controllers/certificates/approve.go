package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"monopod/apiserver/kit/follow"
)

// Allowed reports whether the user who created a request may create the subresource of
// certificatesigningrequests.
type Allowed func(ctx context.Context, by *certificatesv1.CertificateSigningRequestSpec, subresource string) (bool,
	error)

// NewApproving returns the controller that approves requests of nodes for their own certificates, and decides the
// requests of machines that join with a bootstrap token.
func NewApproving(deps follow.Deps, allowed Allowed) *Controller {
	c := &Controller{deps: deps, name: Approving}
	c.work = func(ctx context.Context, r *request) (time.Duration, error) { return c.approve(ctx, r, allowed) }
	return c
}

const (
	nodePrefix = "system:node:" // of the user name of a node
	nodeGroup  = "system:nodes"
)

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

// isSelfNodeServing reports whether a node requests its own serving certificate.
func isSelfNodeServing(r *request, x *x509.CertificateRequest) bool {
	return r.Spec.SignerName == certificatesv1.KubeletServingSignerName && kubeletServing(x, r.Spec.Usages) == nil &&
		r.Spec.Username == x.Subject.CommonName && slices.Contains(r.Spec.Groups, nodeGroup)
}

// approve decides the request, or returns when to try again.
func (c *Controller) approve(ctx context.Context, r *request, allowed Allowed) (time.Duration, error) {
	if len(r.Status.Certificate) > 0 || find(r, certificatesv1.CertificateApproved) != nil ||
		find(r, certificatesv1.CertificateDenied) != nil {
		return 0, nil
	}
	x, err := parse(r)
	if err != nil {
		return 0, nil // csrsigning marks an invalid request as failed
	}
	if isSelfNodeServing(r, x) {
		return c.approveServing(ctx, r, x)
	}
	for _, known := range recognizers() {
		if !known.matches(r, x) {
			continue
		}
		ok, err := allowed(ctx, &r.Spec, known.subresource)
		if err != nil {
			return 0, fmt.Errorf("check the permission of %s: %w", r.Spec.Username, err)
		}
		if !ok {
			continue
		}
		if id, joins := strings.CutPrefix(r.Spec.Username, bootstrapapi.BootstrapUserPrefix); joins {
			return 0, c.join(ctx, r, x, id)
		}
		return 0, c.add(ctx, r, "approval", certificatesv1.CertificateApproved, "AutoApproved", known.message)
	}
	return 0, nil
}
