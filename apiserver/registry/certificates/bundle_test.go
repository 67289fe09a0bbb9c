package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"monopod/apiserver/registry/kind/kindtest"
)

// anchor returns a PEM-encoded certificate.
func anchor(t *testing.T, ca bool) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader,
		&x509.Certificate{SerialNumber: big.NewInt(1), IsCA: ca, BasicConstraintsValid: true},
		&x509.Certificate{SerialNumber: big.NewInt(1)}, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestBundles(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, Resources(), "ClusterTrustBundle")
	one, two, leaf := anchor(t, true), anchor(t, true), anchor(t, false)
	make := func(name, signer, certs string) string {
		text, err := json.Marshal(
			map[string]any{"metadata": map[string]any{"name": name},
				"spec": map[string]any{"signerName": signer, "trustBundle": certs}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, c := range []struct{ name, signer, certs, want string }{
		{"a.b", "", one, ""},
		{"example.com:s:a.b", "example.com/s", "text\n" + one + "text\n" + two, ""},
		{"example.com:s:a", "", one, "metadata.name: Invalid value"},
		{"a_b", "", one, "metadata.name: Invalid value"},
		{"a", "example.com/s", one, "metadata.name: Invalid value"},
		{"example.com:s:A", "example.com/s", one, "metadata.name: Invalid value"},
		{"example:s", "example", one, "spec.signerName: Invalid value"},
		{"a", "", "", "spec.trustBundle: Invalid value"},
		{"a", "", "no certificate", "spec.trustBundle: Invalid value"},
		{"a", "", one + two + one, "spec.trustBundle: Invalid value"},
		{"a", "", leaf, "spec.trustBundle: Invalid value"},
		{"a", "", strings.ReplaceAll(one, "CERTIFICATE", "PRIVATE KEY"), "spec.trustBundle: Invalid value"},
		{"a", "", strings.Replace(one, "\n", "\nA: b\n\n", 1), "spec.trustBundle: Invalid value"},
		{"a", "", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})),
			"spec.trustBundle: Invalid value"},
		{"a", "", one + strings.Repeat(" ", maxBundle), "spec.trustBundle: Too long"},
	} {
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, "; ")
		}
		kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, make(c.name, c.signer, c.certs)), nil, ""), want...)
	}
	old := kindtest.Create(t, r, make("example.com:s:a", "example.com/s", one))
	next := kindtest.Create(t, r, make("example.com:s:a", "example.com/t", one))
	kindtest.WantErrors(t, kindtest.Validate(r, next, old, ""), "metadata.name: Invalid value",
		"spec.signerName: Invalid value")
	if got := kindtest.Row(t, r.Columns, old); !strings.Contains(got, "example.com/s") {
		t.Errorf("columns: %s", got)
	}
}
