package auth

import (
	"crypto/x509"
	"time"
)

// CertificatesPath is the API server's path of the list of certificates; a POST replaces them.
const CertificatesPath = "/monopod/certs"

// Certificate describes a certificate of the server or of one of its users.
type Certificate struct {
	Name, Subject string
	NotAfter      time.Time
}

// CertificateOf returns the description of a certificate.
func CertificateOf(name string, c *x509.Certificate) Certificate {
	return Certificate{Name: name, Subject: c.Subject.String(), NotAfter: c.NotAfter}
}
