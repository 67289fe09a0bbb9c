package auth_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"testing"

	"monopod/apiserver/auth"
)

// The hash of an authority is what openssl computes from its public key, as in kubeadm's documentation.
func TestCAHash(t *testing.T) {
	t.Parallel()
	authority, err := auth.OpenAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(authority.PEM)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(cert.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := auth.CAHash(cert), fmt.Sprintf("sha256:%x", sha256.Sum256(der)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
