// Package certificates contains the kinds CertificateSigningRequest, ClusterTrustBundle and PodCertificateRequest.
package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

type request = certificatesv1.CertificateSigningRequest

// Resources returns the kinds of this package, in the order of discovery.
func Resources() []kind.Resource {
	return []kind.Resource{{
		GVR:          client.CertificateSigningRequests,
		Kind:         "CertificateSigningRequest",
		Controller:   "csrsigning",
		ShortNames:   []string{"csr"},
		Subresources: subresources(),
		New:          func() kind.Object { return new(request) },
		Prepare:      prepare,
		Validate:     validate,
		Fields: func(obj kind.Object) fields.Set {
			return fields.Set{"spec.signerName": obj.(*request).Spec.SignerName}
		},
		Columns: []table.Column{
			table.Name(),
			table.Age(),
			table.Text("SignerName", "The signer that issues the certificate.",
				func(r *request) string { return r.Spec.SignerName }),
			table.Text("Requestor", "The user who created the request.", func(r *request) string { return r.Spec.Username }),
			table.Text("RequestedDuration", "The requested validity of the certificate.", func(r *request) string {
				if r.Spec.ExpirationSeconds == nil {
					return table.None
				}
				return duration.HumanDuration(time.Duration(*r.Spec.ExpirationSeconds) * time.Second)
			}),
			table.Text("Condition", "Whether the request is approved and the certificate issued.", condition),
		},
	}, bundles(), podRequests()}
}

// subresources returns approval and status. Neither can change the spec.
func subresources() []kind.Subresource {
	status := kind.Parts("status")[0]
	approval := status
	approval.Name, approval.Merge, status.Merge = "approval", mergeApproval, mergeStatus
	return []kind.Subresource{approval, status}
}

func condition(r *request) string {
	text := "Pending"
	switch {
	case hasCondition(r, certificatesv1.CertificateDenied):
		text = "Denied"
	case hasCondition(r, certificatesv1.CertificateApproved):
		text = "Approved"
	}
	if hasCondition(r, certificatesv1.CertificateFailed) {
		text += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		text += ",Issued"
	}
	return text
}

func findCondition(r *request,
	t certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == t {
			return &r.Status.Conditions[i]
		}
	}
	return nil
}

func hasCondition(r *request, t certificatesv1.RequestConditionType) bool {
	return findCondition(r, t) != nil
}

// prepare keeps the spec in all updates, and the status in updates without a subresource.
func prepare(next, cur kind.Object, subresource string) {
	r := next.(*request)
	if cur == nil {
		r.Status = certificatesv1.CertificateSigningRequestStatus{}
		return
	}
	old := cur.(*request).DeepCopy()
	r.Spec = old.Spec
	if subresource == "" {
		r.Status = old.Status
	}
}

// mergeApproval takes only the conditions from next.
func mergeApproval(next, cur kind.Object, now metav1.Time) error {
	r, old := next.(*request), cur.(*request).DeepCopy()
	conditions := r.Status.Conditions
	r.Spec, r.Status = old.Spec, old.Status
	r.Status.Conditions = withTimes(conditions, old, now)
	return nil
}

// mergeStatus keeps the spec and the existing decisions. It keeps an added or missing decision, too, which validation
// rejects.
func mergeStatus(next, cur kind.Object, now metav1.Time) error {
	r, old := next.(*request), cur.(*request).DeepCopy()
	r.Spec = old.Spec
	for i, c := range r.Status.Conditions {
		if was := findCondition(old, c.Type); was != nil && decision(c.Type) {
			r.Status.Conditions[i] = *was
		}
	}
	r.Status.Conditions = withTimes(r.Status.Conditions, old, now)
	return nil
}

func decision(t certificatesv1.RequestConditionType) bool {
	return t == certificatesv1.CertificateApproved || t == certificatesv1.CertificateDenied
}

// withTimes sets the times that the client omitted.
func withTimes(conditions []certificatesv1.CertificateSigningRequestCondition, old *request,
	now metav1.Time) []certificatesv1.CertificateSigningRequestCondition {
	for i := range conditions {
		c := &conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		if was := findCondition(old, c.Type); was != nil && was.Status == c.Status && !was.LastTransitionTime.IsZero() {
			c.LastTransitionTime = was.LastTransitionTime
		}
	}
	return conditions
}

// parse decodes a PEM-encoded request.
func parse(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("invalid signature: %w", err)
	}
	return r, nil
}
