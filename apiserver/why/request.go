package why

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"monopod/apiserver/kit/words"
)

// requested describes the certificate that a request asks for: its subject, its names and its usages.
func requested(r *certificatesv1.CertificateSigningRequest) (all []string) {
	add := func(name string, values ...string) {
		if len(values) > 0 {
			all = append(all, name+": "+words.Clip(strings.Join(values, ", ")))
		}
	}
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return nil
	}
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil
	}
	add("subject", req.Subject.String())
	names := slices.Concat(req.DNSNames, req.EmailAddresses)
	for _, ip := range req.IPAddresses {
		names = append(names, ip.String())
	}
	for _, uri := range req.URIs {
		names = append(names, uri.String())
	}
	add("names", names...)
	var usages []string
	for _, u := range r.Spec.Usages {
		usages = append(usages, string(u))
	}
	add("usages", usages...)
	return all
}

// request explains whether a CertificateSigningRequest waits for its approval, is denied, or waits for its certificate.
func (f explanation) request(r *certificatesv1.CertificateSigningRequest) Answer {
	var evidence []string
	decided := map[certificatesv1.RequestConditionType]*certificatesv1.CertificateSigningRequestCondition{}
	for i, c := range r.Status.Conditions {
		decided[c.Type] = &r.Status.Conditions[i]
		evidence = append(evidence, "condition "+string(c.Type)+": "+words.Reason(c.Reason, c.Message))
	}
	evidence = append(evidence, "signerName: "+r.Spec.SignerName, "username: "+r.Spec.Username)
	evidence = append(evidence, requested(r)...)
	name := words.Name(r)
	switch denied, failed := decided[certificatesv1.CertificateDenied], decided[certificatesv1.CertificateFailed]; {
	case denied != nil:
		return answer("Correct the request, and create it again under another name.", evidence, "%s was denied: %s.", name,
			words.Reason(denied.Reason, denied.Message))
	case failed != nil:
		return answer("Correct what the message names, and create the request again under another name.", evidence,
			"%s has failed: %s.", name, words.Reason(failed.Reason, failed.Message))
	case decided[certificatesv1.CertificateApproved] == nil:
		return answer("Check who requests it and for what, then: kubectl certificate approve "+r.Name, evidence,
			"%s waits until somebody approves or denies it.", name)
	case len(r.Status.Certificate) > 0:
		return answer("", evidence, "%s is approved, and its certificate is issued.", name)
	case strings.HasPrefix(r.Spec.SignerName, "kubernetes.io/"):
		return answer("Wait; the signer does it by itself.", evidence,
			"%s is approved, and its certificate is not issued yet.", name)
	}
	return answer("Start the program that signs for this signerName.", evidence,
		"%s is approved, and the signer %s has not issued its certificate.", name, r.Spec.SignerName)
}
