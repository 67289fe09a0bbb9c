package certificates

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/registry/kind"
)

// Upstream's limits (pkg/apis/certificates/validation).
const (
	minSeconds   = 600
	legacySigner = "kubernetes.io/legacy-unknown"
)

func validate(next, cur kind.Object, subresource string) field.ErrorList {
	r := next.(*request)
	if cur == nil {
		return specErrors(&r.Spec, field.NewPath("spec"))
	}
	at := field.NewPath("status")
	errs := append(conditionErrors(r, at.Child("conditions")),
		decisionErrors(r, cur.(*request), at.Child("conditions"), subresource)...)
	if subresource == "status" {
		errs = append(errs, certificateErrors(r, cur.(*request), at.Child("certificate"))...)
	}
	return errs
}

func specErrors(spec *certificatesv1.CertificateSigningRequestSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if _, err := parse(spec.Request); err != nil {
		errs = append(errs, field.Invalid(at.Child("request"), spec.Request, fmt.Sprint(err)))
	}
	if len(spec.Usages) == 0 {
		errs = append(errs, field.Required(at.Child("usages"), ""))
	}
	for i, u := range spec.Usages {
		if !slices.Contains(usages(), u) {
			errs = append(errs, field.NotSupported(at.Child("usages").Index(i), u, usages()))
		}
		if slices.Contains(spec.Usages[:i], u) {
			errs = append(errs, field.Duplicate(at.Child("usages").Index(i), u))
		}
	}
	if spec.SignerName == legacySigner {
		errs = append(errs,
			field.Invalid(at.Child("signerName"), spec.SignerName, "the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, check.Signer(spec.SignerName, at.Child("signerName"))...)
	}
	if n := spec.ExpirationSeconds; n != nil && *n < minSeconds {
		errs = append(errs,
			field.Invalid(at.Child("expirationSeconds"), *n, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

// usages returns the key usages that upstream supports.
func usages() []certificatesv1.KeyUsage {
	return []certificatesv1.KeyUsage{
		certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment,
		certificatesv1.UsageKeyEncipherment, certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment,
		certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign, certificatesv1.UsageEncipherOnly,
		certificatesv1.UsageDecipherOnly, certificatesv1.UsageAny, certificatesv1.UsageServerAuth,
		certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning, certificatesv1.UsageEmailProtection,
		certificatesv1.UsageSMIME, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
		certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping, certificatesv1.UsageOCSPSigning,
		certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC,
	}
}

// conditionErrors checks the conditions without regard to the stored ones.
func conditionErrors(r *request, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range r.Status.Conditions {
		at := at.Index(i)
		switch {
		case c.Type == "":
			errs = append(errs, field.Required(at.Child("type"), ""))
		case seen[c.Type]:
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		seen[c.Type] = true
		if decision(c.Type) || c.Type == certificatesv1.CertificateFailed {
			errs = append(errs, check.OneOf(at.Child("status"), c.Status, corev1.ConditionTrue)...)
		} else {
			errs = append(errs,
				check.OneOf(at.Child("status"), c.Status, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown)...)
		}
	}
	if seen[certificatesv1.CertificateApproved] && seen[certificatesv1.CertificateDenied] {
		errs = append(errs,
			field.Invalid(at, certificatesv1.CertificateDenied, "Approved and Denied conditions are mutually exclusive"))
	}
	return errs
}

// decisionErrors rejects the removal of a decision or a failure, the change of a decision, and a new decision outside
// of the subresource approval.
func decisionErrors(r, old *request, at *field.Path, subresource string) field.ErrorList {
	var errs field.ErrorList
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved,
		certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		was, is := findCondition(old, t), findCondition(r, t)
		switch {
		case was == nil && is == nil:
		case was == nil:
			if decision(t) && subresource != "approval" {
				errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not add a condition of type %q", t)))
			}
		case is == nil:
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not remove a condition of type %q", t)))
		case decision(t) && !equality.Semantic.DeepEqual(was, is):
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not modify a condition of type %q", t)))
		}
	}
	return errs
}

// certificateErrors checks a new certificate. An issued certificate is immutable.
func certificateErrors(r, old *request, at *field.Path) field.ErrorList {
	if len(old.Status.Certificate) > 0 {
		if !bytes.Equal(old.Status.Certificate, r.Status.Certificate) {
			return field.ErrorList{field.Forbidden(at, apivalidation.FieldImmutableErrorMsg)}
		}
		return nil
	}
	if len(r.Status.Certificate) == 0 {
		return nil
	}
	if err := checkCertificateBlocks(r.Status.Certificate); err != nil {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, fmt.Sprint(err))}
	}
	return nil
}

// checkCertificateBlocks requires one or more PEM blocks, all of type CERTIFICATE.
func checkCertificateBlocks(text []byte) error {
	for n := 0; ; n++ {
		block, rest := pem.Decode(text)
		if block == nil {
			if n == 0 {
				return errors.New("must contain at least one CERTIFICATE PEM block")
			}
			return nil
		}
		text = rest
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		if _, err := x509.ParseCertificates(block.Bytes); err != nil {
			return err
		}
	}
}
