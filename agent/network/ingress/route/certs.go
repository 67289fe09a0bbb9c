package route

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ParseCertificate reads the certificate of a Secret of any type.
func ParseCertificate(s *corev1.Secret) (*tls.Certificate, error) {
	chain, key := s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]
	if len(chain) == 0 || len(key) == 0 {
		return nil, fmt.Errorf("it lacks %s or %s", corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "tls: "))
	}
	return &cert, nil
}

// RejectReason returns the reason why clients will reject a certificate for a host, as the end of a sentence; empty:
// they accept it.
func RejectReason(cert *tls.Certificate, host string, now time.Time) string {
	if now.After(cert.Leaf.NotAfter) {
		return "has expired on " + cert.Leaf.NotAfter.UTC().Format(time.DateOnly)
	}
	name := host
	if rest, wildcard := strings.CutPrefix(host, "*"); wildcard {
		name = "any" + rest
	}
	if cert.Leaf.VerifyHostname(name) != nil {
		return "is not for the host " + host
	}
	return ""
}

// SelfSigned returns a function that creates a certificate when it is first called. Its validity does not depend on a
// correct clock, since no client trusts it.
func SelfSigned() func() (*tls.Certificate, error) {
	return sync.OnceValues(func() (*tls.Certificate, error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
		if err != nil {
			return nil, err
		}
		now := time.Now()
		template := &x509.Certificate{
			SerialNumber: serial, Subject: pkix.Name{CommonName: "Monopod ingress controller, self-signed"},
			DNSNames: []string{"ingress.local"}, NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(10, 0, 0),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			BasicConstraintsValid: true,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			return nil, err
		}
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
	})
}
