package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

type podRequest = certificatesv1.PodCertificateRequest

// Upstream's limits of a request for a pod (pkg/apis/certificates).
const (
	defaultPodSeconds = 86400
	maxPodUID         = 128
	maxStub           = 10 << 10
)

func podRequests() kind.Resource {
	status := kind.Parts("status")[0]
	status.Merge = mergePodStatus
	return kind.Resource{
		GVR:          client.PodCertificateRequests,
		Kind:         "PodCertificateRequest",
		Namespaced:   true,
		Subresources: []kind.Subresource{status},
		New:          func() kind.Object { return new(podRequest) },
		Default: func(obj kind.Object) {
			kind.SetIfNil(&obj.(*podRequest).Spec.MaxExpirationSeconds, defaultPodSeconds)
		},
		Prepare: kind.WithoutGeneration(
			func(obj kind.Object) (*certificatesv1.PodCertificateRequestSpec, *certificatesv1.PodCertificateRequestStatus) {
				return &obj.(*podRequest).Spec, &obj.(*podRequest).Status
			}),
		Validate: podRequestErrors,
		Fields: func(obj kind.Object) fields.Set {
			spec := &obj.(*podRequest).Spec
			return fields.Set{"spec.signerName": spec.SignerName, "spec.podName": spec.PodName,
				"spec.nodeName": string(spec.NodeName)}
		},
		Columns: []table.Column{
			table.Name(),
			table.Text("PodName", "The pod that gets the certificate.", func(r *podRequest) string { return r.Spec.PodName }),
			table.Text("ServiceAccountName", "The service account of the pod.",
				func(r *podRequest) string { return r.Spec.ServiceAccountName }),
			table.Text("NodeName", "The node of the pod.", func(r *podRequest) string { return string(r.Spec.NodeName) }),
			table.Text("SignerName", "The signer that issues the certificate.",
				func(r *podRequest) string { return r.Spec.SignerName }),
			table.Text("State", "Whether the certificate is issued.", podState),
		},
	}
}

// podState returns the type of the condition that ended the request, or Pending.
func podState(r *podRequest) string {
	if c := finalCondition(r); c != nil {
		return c.Type
	}
	return "Pending"
}

// finalConditionTypes returns the types of conditions that end a request.
func finalConditionTypes() []string {
	return []string{certificatesv1.PodCertificateRequestConditionTypeIssued,
		certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed}
}

// finalCondition returns the condition that ended the request; nil: it is pending.
func finalCondition(r *podRequest) *metav1.Condition {
	for i := range r.Status.Conditions {
		if c := &r.Status.Conditions[i]; c.Status == metav1.ConditionTrue && slices.Contains(finalConditionTypes(), c.Type) {
			return c
		}
	}
	return nil
}

// mergePodStatus keeps existing conditions and sets missing times. It also makes the check that depends on the time of
// the write: the validity of a newly issued certificate begins about now. Validation makes the others.
func mergePodStatus(next, cur kind.Object, now metav1.Time) error {
	r, old := next.(*podRequest), cur.(*podRequest)
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		for _, was := range old.Status.Conditions {
			if was.Type == c.Type {
				*c = was
			}
		}
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = now
		}
	}
	if finalCondition(old) != nil || podState(r) != certificatesv1.PodCertificateRequestConditionTypeIssued ||
		r.Status.NotBefore == nil || r.Status.NotBefore.Sub(now.Time).Abs() <= maxBackdate {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: certificatesv1.GroupName, Kind: "PodCertificateRequest"}, old.Name,
		field.ErrorList{field.Invalid(field.NewPath("status", "notBefore"), r.Status.NotBefore.Time,
			"must be set to within 5 minutes of kube-apiserver's current time")})
}

func podRequestErrors(next, cur kind.Object, subresource string) field.ErrorList {
	r, old := next.(*podRequest), (*podRequest)(nil)
	switch old, _ = cur.(*podRequest); {
	case old == nil:
		return podSpecErrors(&r.Spec, field.NewPath("spec"))
	case subresource == "status":
		return podStatusErrors(r, old, field.NewPath("status"))
	}
	return apivalidation.ValidateImmutableField(r.Spec, old.Spec, field.NewPath("spec"))
}

func podSpecErrors(spec *certificatesv1.PodCertificateRequestSpec, at *field.Path) field.ErrorList {
	errs := check.Signer(spec.SignerName, at.Child("signerName"))
	errs = append(errs, check.UserAnnotations(at.Child("unverifiedUserAnnotations"), spec.UnverifiedUserAnnotations)...)
	for _, of := range []struct{ what, name, uid string }{
		{"pod", spec.PodName, string(spec.PodUID)},
		{"serviceAccount", spec.ServiceAccountName, string(spec.ServiceAccountUID)},
		{"node", string(spec.NodeName), string(spec.NodeUID)},
	} {
		errs = append(errs,
			check.Invalid(at.Child(of.what+"Name"), of.name, apivalidation.NameIsDNSSubdomain(of.name, false))...)
		switch uid := at.Child(of.what + "UID"); {
		case of.uid == "":
			errs = append(errs, field.Invalid(uid, of.uid, "must not be empty"))
		case len(of.uid) > maxPodUID:
			errs = append(errs, field.TooLong(uid, of.uid, maxPodUID))
		}
	}
	if n := spec.MaxExpirationSeconds; n == nil {
		errs = append(errs, field.Required(at.Child("maxExpirationSeconds"), "must be set"))
	} else if least, most := check.PodCertificateSeconds(spec.SignerName); *n < least || *n > most {
		errs = append(errs,
			field.Invalid(at.Child("maxExpirationSeconds"), *n, fmt.Sprintf("must be in the range [%d, %d]", least, most)))
	}
	if len(spec.StubPKCS10Request) > maxStub {
		return append(errs, field.TooLong(at.Child("stubPKCS10Request"), "", maxStub))
	}
	if _, err := requestKey(spec.StubPKCS10Request); err != nil {
		errs = append(errs, field.Invalid(at.Child("stubPKCS10Request"), field.OmitValueType{}, err.Error()))
	}
	return errs
}

// publicKey is implemented by all supported public keys.
type publicKey interface{ Equal(crypto.PublicKey) bool }

// requestKey returns the public key of a PKCS#10 request. The signature proves that the sender has the private key.
func requestKey(der []byte) (publicKey, error) {
	r, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("must be a DER-encoded PKCS#10 certificate signing request: %w", err)
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("could not verify the signature of the certificate signing request: %w", err)
	}
	switch key := r.PublicKey.(type) {
	case ed25519.PublicKey:
		return key, nil
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() || key.Curve == elliptic.P384() || key.Curve == elliptic.P521() {
			return key, nil
		}
		return nil, fmt.Errorf("elliptic public keys must use curve P256, P384 or P521, not %s", key.Curve.Params().Name)
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return nil, fmt.Errorf("RSA keys must have modulus size 3072 or 4096, not %d", bits)
		}
		return key, nil
	}
	return nil, fmt.Errorf("unknown public key type %T; supported types are Ed25519, ECDSA, and RSA", r.PublicKey)
}

// podStatusErrors checks a status: at most one final condition, which is immutable; other fields only if the
// certificate is issued.
func podStatusErrors(r, old *podRequest, at *field.Path) (errs field.ErrorList) {
	ends := 0
	for i, c := range r.Status.Conditions {
		at := at.Child("conditions").Index(i)
		if !slices.Contains(finalConditionTypes(), c.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), c.Type, finalConditionTypes()))
			continue
		}
		if ends++; ends > 1 {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type,
				`There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		errs = append(errs, check.OneOf(at.Child("status"), c.Status, metav1.ConditionTrue)...)
	}
	if errs = append(errs, metav1validation.ValidateConditions(r.Status.Conditions, at.Child("conditions"))...); len(
		errs) > 0 {
		return errs
	}
	if finalCondition(old) != nil {
		if !equality.Semantic.DeepEqual(r.Status, old.Status) {
			return field.ErrorList{field.Invalid(at, field.OmitValueType{},
				"immutable after PodCertificateRequest is issued, denied, or failed")}
		}
		return nil
	}
	end := finalCondition(r)
	if end != nil && end.Type == certificatesv1.PodCertificateRequestConditionTypeIssued {
		return issuedErrors(r, at)
	}
	if !equality.Semantic.DeepEqual(r.Status,
		certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions}) {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{},
			"non-condition status fields must be empty unless the PodCertificateRequest is issued")}
	}
	return nil
}
