package certificates

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Sign signs a certificate for a public key, and returns it PEM encoded.
type Sign func(template x509.Certificate, public any) ([]byte, error)

// Authorities sign the certificates.
type Authorities struct {
	Cluster Sign // whose certificates the API server and its clients trust
	Kubelet Sign // whose certificates only the API server trusts, when it calls kubelets
}

const (
	// minDuration is the shortest validity.
	minDuration = 10 * time.Minute
	// maxKubelet is the longest validity of a node's client certificate that names one, because a node can be offline for
	// years. The server's own certificates have the same.
	maxKubelet = 10 * 365 * 24 * time.Hour
	// backdate allows for clocks that differ (upstream: the same).
	backdate = 5 * time.Minute
)

// NewSigning returns the controller that signs approved requests. Certificates are valid for duration at most, except
// the client certificates of nodes that request more; 0 means upstream's year.
func NewSigning(deps follow.Deps, by Authorities, duration time.Duration) *Controller {
	all := signers(by, cmp.Or(duration, 365*24*time.Hour))
	c := &Controller{deps: deps, name: Signing}
	c.work = func(ctx context.Context, r *request) (time.Duration, error) {
		s, ours := all[r.Spec.SignerName]
		if !ours {
			return 0, nil
		}
		return 0, c.sign(ctx, r, s)
	}
	return c
}

// signer checks and signs the requests of a signer name.
type signer struct {
	check    func(x *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error
	sign     Sign
	validity time.Duration // of a request that names none
	longest  time.Duration
}

func signers(by Authorities, validity time.Duration) map[string]signer {
	return map[string]signer{
		certificatesv1.KubeAPIServerClientSignerName: {apiClient, by.Cluster, validity, validity},
		certificatesv1.KubeAPIServerClientKubeletSignerName: {kubeletClient, by.Cluster, validity,
			max(validity, maxKubelet)},
		certificatesv1.KubeletServingSignerName: {kubeletServing, by.Kubelet, validity, validity},
	}
}

func (c *Controller) sign(ctx context.Context, r *request, s signer) error {
	if len(r.Status.Certificate) > 0 || find(r, certificatesv1.CertificateApproved) == nil ||
		find(r, certificatesv1.CertificateDenied) != nil || find(r, certificatesv1.CertificateFailed) != nil {
		return nil
	}
	x, err := parse(r)
	if err == nil {
		err = s.check(x, r.Spec.Usages)
	}
	if err != nil {
		return c.add(ctx, r, "status", certificatesv1.CertificateFailed, "SignerValidationFailure", err.Error())
	}
	from, until := s.valid(r, c.deps.Clock.Now())
	issued, err := s.sign(template(x, r.Spec.Usages, from, until), x.PublicKey)
	if err != nil {
		return fmt.Errorf("sign %s: %w", r.Name, err)
	}
	_, err = client.Update(ctx, c.deps.Client, r, "status", func(cur *request) error {
		cur.UID, cur.ResourceVersion, cur.Status.Certificate = r.UID, r.ResourceVersion, issued
		return nil
	})
	return err
}

// valid returns when the certificate of a request is valid: for the requested time, limited to at least 10 minutes and
// at most the signer's longest. A kubelet renews its certificates after a part of the time between the two. A node that
// asks for more than the usual time, as Monopod's agent does, gets no begin: its certificate must also be valid at a
// server whose clock went back.
func (s signer) valid(r *request, now time.Time) (from, until time.Time) {
	life := s.validity
	if r.Spec.ExpirationSeconds != nil {
		life = min(max(time.Duration(*r.Spec.ExpirationSeconds)*time.Second, minDuration), s.longest)
	}
	if life <= s.validity {
		from = now.Add(-backdate)
	}
	return from, now.Add(life)
}

// template returns the certificate to sign.
func template(x *x509.CertificateRequest, usages []certificatesv1.KeyUsage, from, until time.Time) x509.Certificate {
	t := x509.Certificate{
		RawSubject: x.RawSubject, Subject: x.Subject, NotBefore: from, NotAfter: until,
		DNSNames: x.DNSNames, IPAddresses: x.IPAddresses, EmailAddresses: x.EmailAddresses, URIs: x.URIs,
	}
	for _, u := range usages {
		switch u { // the signers accept no others
		case certificatesv1.UsageDigitalSignature:
			t.KeyUsage |= x509.KeyUsageDigitalSignature
		case certificatesv1.UsageKeyEncipherment:
			t.KeyUsage |= x509.KeyUsageKeyEncipherment
		case certificatesv1.UsageClientAuth:
			t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		case certificatesv1.UsageServerAuth:
			t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		}
	}
	return t
}

// apiClient checks a request for a client certificate for the API server.
func apiClient(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth:
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", u)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}

// kubeletClient checks a request for a node's client certificate for the API server.
func kubeletClient(x *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	if err := checkNodeSubject(x); err != nil {
		return err
	}
	switch {
	case len(x.DNSNames) > 0:
		return errNotAllowed("DNS")
	case len(x.IPAddresses) > 0:
		return errNotAllowed("IP")
	}
	return checkUsages(usages, certificatesv1.UsageClientAuth)
}

// kubeletServing checks a request for a node's serving certificate.
func kubeletServing(x *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	if err := checkNodeSubject(x); err != nil {
		return err
	}
	if len(x.DNSNames)+len(x.IPAddresses) == 0 {
		return errors.New("DNS or IP subjectAltName is required")
	}
	return checkUsages(usages, certificatesv1.UsageServerAuth)
}

// checkNodeSubject checks the subject of a request for a node's certificate.
func checkNodeSubject(x *x509.CertificateRequest) error {
	switch {
	case !slices.Equal(x.Subject.Organization, []string{nodeGroup}):
		return errors.New("subject organization is not system:nodes")
	case !strings.HasPrefix(x.Subject.CommonName, nodePrefix):
		return errors.New("subject common name does not begin with system:node: ")
	case len(x.EmailAddresses) > 0:
		return errNotAllowed("Email")
	case len(x.URIs) > 0:
		return errNotAllowed("URI")
	}
	return nil
}

// errNotAllowed returns the error for subject alternative names of a type that the signer does not allow.
func errNotAllowed(kind string) error { return fmt.Errorf("%s subjectAltNames are not allowed", kind) }

// checkUsages requires digital signature and the given usage; key encipherment is optional.
func checkUsages(usages []certificatesv1.KeyUsage, usage certificatesv1.KeyUsage) error {
	required := []certificatesv1.KeyUsage{usage, certificatesv1.UsageDigitalSignature}
	has := slices.DeleteFunc(slices.Clone(usages),
		func(u certificatesv1.KeyUsage) bool { return u == certificatesv1.UsageKeyEncipherment })
	slices.Sort(required)
	if slices.Sort(has); !slices.Equal(has, required) {
		return fmt.Errorf("usages did not match %v", required)
	}
	return nil
}
