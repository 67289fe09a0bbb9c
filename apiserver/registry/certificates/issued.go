package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Upstream's limits of a certificate for a pod.
const (
	maxChain    = 100 << 10
	minLife     = time.Hour
	refreshGap  = 10 * time.Minute // minimum between beginRefreshAt and notBefore or notAfter
	maxBackdate = 5 * time.Minute
)

// issuedErrors checks an issued certificate: the public key, the lifetime and the times in the status. As upstream, it
// stops at an error on which later checks depend.
func issuedErrors(r *podRequest, at *field.Path) (errs field.ErrorList) {
	chain := at.Child("certificateChain")
	bad := func(at *field.Path, value any, format string, args ...any) field.ErrorList {
		return append(errs, field.Invalid(at, value, fmt.Sprintf(format, args...)))
	}
	if len(r.Status.CertificateChain) > maxChain {
		return field.ErrorList{field.TooLong(chain, "", maxChain)}
	}
	leaf, err := parseChain(r.Status.CertificateChain)
	if err != nil {
		return bad(chain, field.OmitValueType{}, "%v", err)
	}
	errs = append(errs, leafNameErrors(leaf, chain)...)
	if key, err := requestKey(r.Spec.StubPKCS10Request); err != nil || !key.Equal(leaf.PublicKey) {
		return bad(chain, field.OmitValueType{}, "leaf certificate was not issued to the requested public key")
	}
	s := &r.Status
	for _, of := range []struct {
		name string
		time *metav1.Time
	}{{"notBefore", s.NotBefore}, {"notAfter", s.NotAfter}, {"beginRefreshAt", s.BeginRefreshAt}} {
		if of.time == nil {
			errs = append(errs, field.Required(at.Child(of.name), "must be present and consistent with the issued certificate"))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	switch {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		return bad(at.Child("notBefore"), s.NotBefore.Time,
			"must be set to the NotBefore time encoded in the leaf certificate")
	case !s.NotAfter.Time.Equal(leaf.NotAfter):
		return bad(at.Child("notAfter"), s.NotAfter.Time, "must be set to the NotAfter time encoded in the leaf certificate")
	case life < minLife:
		return bad(chain, life.String(), "leaf certificate lifetime must be >= 1 hour")
	case r.Spec.MaxExpirationSeconds != nil && life > time.Duration(*r.Spec.MaxExpirationSeconds)*time.Second:
		return bad(chain, life.String(), "leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)",
			*r.Spec.MaxExpirationSeconds)
	case s.BeginRefreshAt.Time.Before(s.NotBefore.Add(refreshGap)):
		return bad(at.Child("beginRefreshAt"), s.BeginRefreshAt.Time, "must be at least 10 minutes after status.notBefore")
	case s.BeginRefreshAt.After(s.NotAfter.Add(-refreshGap)):
		return bad(at.Child("beginRefreshAt"), s.BeginRefreshAt.Time, "must be at least 10 minutes before status.notAfter")
	}
	return nil
}

// parseChain parses all certificates of a chain and returns the leaf.
func parseChain(text string) (leaf *x509.Certificate, err error) {
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if leaf == nil {
				return nil, fmt.Errorf("issued certificate chain must contain at least one certificate")
			}
			return leaf, nil
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil && leaf == nil:
			return nil, fmt.Errorf("leaf certificate does not parse as valid X.509")
		case err != nil:
			return nil, fmt.Errorf("intermediate certificate does not parse as valid X.509")
		case leaf == nil:
			leaf = cert
		}
	}
}

// leafNameErrors checks alternative names that Go's parser accepts and other clients reject.
func leafNameErrors(leaf *x509.Certificate, at *field.Path) (errs field.ErrorList) {
	for _, name := range leaf.DNSNames {
		switch {
		case name == "":
			errs = append(errs, field.Invalid(at, name, "leaf certificate should not contain empty DNSName"))
		case strings.Contains(name, ".."):
			errs = append(errs, field.Invalid(at, name, "leaf certificate's DNSName should not contain '..'"))
		case strings.HasPrefix(name, ".") || strings.HasSuffix(name, "."):
			errs = append(errs, field.Invalid(at, name, "leaf certificate's DNSName should not start or end with '.'"))
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, field.Invalid(at, address, "leaf certificate should not contain invalid EmailAddress"))
		}
	}
	return errs
}
