package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
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

// CAHash returns the hash by which a machine that joins recognizes the cluster's certificate authority: "sha256:" and
// the hex encoded SHA-256 of the DER encoded SubjectPublicKeyInfo, like kubeadm's --discovery-token-ca-cert-hash. It
// stays the same if the authority's certificate is renewed with the same key.
func CAHash(cert *x509.Certificate) string {
	hash := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(hash[:])
}

// CAHashPEM is CAHash of the first certificate in PEM.
func CAHashPEM(data []byte) (string, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return "", errors.New("no certificate found")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", err
	}
	return CAHash(cert), nil
}
