package plugins

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/auth"
	"monopod/apiserver/registry/admission"
)

// certificateRequester records the user that creates a CertificateSigningRequest. Parts of this process set the user
// themselves.
func certificateRequester() admission.Plugin {
	return admission.Plugin{Name: "CertificateRequester", Mutate: func(ctx context.Context, r *admission.Request) error {
		next, ok := r.Object.(*certificatesv1.CertificateSigningRequest)
		user, known := auth.Known(ctx)
		if !ok || !known || r.Operation != admission.Create || r.Subresource != "" {
			return nil
		}
		next.Spec.Username, next.Spec.UID, next.Spec.Groups, next.Spec.Extra = user.Name, user.UID, slices.Clone(user.Groups),
			nil
		for key, values := range user.Extra {
			if next.Spec.Extra == nil {
				next.Spec.Extra = map[string]certificatesv1.ExtraValue{}
			}
			next.Spec.Extra[key] = slices.Clone(values)
		}
		return nil
	}}
}

// certificateApproval requires the verb approve on the signer for changes of the approval.
func certificateApproval(roles Roles) admission.Plugin {
	return admission.Plugin{Name: "CertificateApproval", Validate: func(ctx context.Context, r *admission.Request) error {
		old, ok := r.Old.(*certificatesv1.CertificateSigningRequest)
		if !ok || r.Operation != admission.Update || r.Subresource != "approval" {
			return nil
		}
		return requireSignerVerb(ctx, roles, r, "approve", old.Spec.SignerName)
	}}
}

// certificateSigning requires the verb sign on the signer for changes of the certificate or the conditions.
func certificateSigning(roles Roles) admission.Plugin {
	return admission.Plugin{Name: "CertificateSigning", Validate: func(ctx context.Context, r *admission.Request) error {
		old, ok := r.Old.(*certificatesv1.CertificateSigningRequest)
		next, also := r.Object.(*certificatesv1.CertificateSigningRequest)
		if !ok || !also || r.Operation != admission.Update || r.Subresource != "status" ||
			equality.Semantic.DeepEqual(old.Status, next.Status) {
			return nil
		}
		return requireSignerVerb(ctx, roles, r, "sign", old.Spec.SignerName)
	}}
}

// podCertificateSigning requires the verb sign on the signer for changes of a PodCertificateRequest's status. As
// upstream, a violation is a validation error.
func podCertificateSigning(roles Roles) admission.Plugin {
	return admission.Plugin{Name: "PodCertificateSigning",
		Validate: func(ctx context.Context, r *admission.Request) error {
			old, ok := r.Old.(*certificatesv1.PodCertificateRequest)
			next, also := r.Object.(*certificatesv1.PodCertificateRequest)
			if !ok || !also || r.Operation != admission.Update || r.Subresource != "status" ||
				old.Status.CertificateChain == next.Status.CertificateChain {
				return nil
			}
			err := requireSignerVerb(ctx, roles, r, "sign", old.Spec.SignerName)
			if !apierrors.IsForbidden(err) {
				return err
			}
			user, _ := auth.Known(ctx)
			return apierrors.NewInvalid(r.Resource.GVK().GroupKind(), old.Name,
				field.ErrorList{field.Forbidden(field.NewPath("spec", "signerName"),
					fmt.Sprintf("User %q is not permitted to %q for signer %q", user.Name, "sign", old.Spec.SignerName))})
		}}
}

// trustBundleAttest requires the verb attest on the signer for writes of its ClusterTrustBundles.
func trustBundleAttest(roles Roles) admission.Plugin {
	return admission.Plugin{Name: "ClusterTrustBundleAttest",
		Validate: func(ctx context.Context, r *admission.Request) error {
			next, ok := r.Object.(*certificatesv1.ClusterTrustBundle)
			if !ok || next.Spec.SignerName == "" || r.Operation != admission.Create && r.Operation != admission.Update {
				return nil
			}
			if old, ok := r.Old.(*certificatesv1.ClusterTrustBundle); ok && old.Spec == next.Spec {
				return nil
			}
			return requireSignerVerb(ctx, roles, r, "attest", next.Spec.SignerName)
		}}
}

// requireSignerVerb requires a verb on a signer, or on all signers of its domain.
func requireSignerVerb(ctx context.Context, roles Roles, r *admission.Request, verb, signer string) error {
	user, ok := auth.Known(ctx)
	if roles == nil || !ok || slices.Contains(user.Groups, auth.Masters) {
		return nil
	}
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		allowed, _, err := roles.Authorize(ctx,
			auth.Attributes{User: user, Verb: verb, Group: certificatesv1.GroupName, Version: "*", Resource: "signers",
				Name: name})
		if allowed || err != nil {
			return err
		}
	}
	if verb == "attest" {
		return r.Forbid(fmt.Errorf("user not permitted to attest for signerName %q", signer))
	}
	return r.Forbid(fmt.Errorf("user not permitted to %s requests with signerName %q", verb, signer))
}

// certificateSubjectRestriction rejects client certificates for system:masters, for the front proxy and for API servers.
func certificateSubjectRestriction() admission.Plugin {
	return admission.Plugin{Name: "CertificateSubjectRestriction",
		Validate: func(_ context.Context, r *admission.Request) error {
			next, ok := r.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok || r.Operation != admission.Create || next.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
				return nil
			}
			block, _ := pem.Decode(next.Spec.Request)
			if block == nil {
				return r.Forbid(errors.New("failed to parse CSR"))
			}
			parsed, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil {
				return r.Forbid(fmt.Errorf("failed to parse CSR: %w", err))
			}
			// API servers trust the user names that a front proxy sends, and kubelets every request of an API server.
			if name := parsed.Subject.CommonName; name == auth.FrontProxy.Name || name == auth.KubeletClient.Name {
				return r.Forbid(fmt.Errorf("use of %s signer with the name %s is not allowed",
					certificatesv1.KubeAPIServerClientSignerName, name))
			}
			if slices.Contains(parsed.Subject.Organization, auth.Masters) {
				return r.Forbid(
					fmt.Errorf("use of %s signer with %s group is not allowed", certificatesv1.KubeAPIServerClientSignerName,
						auth.Masters))
			}
			return nil
		}}
}
