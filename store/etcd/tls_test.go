package etcd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"monopod/store/etcd"
	"monopod/store/etcd/etcdtest"
	"monopod/store/storetest"
)

// The store sends its client certificate to an etcd that requires one, and refuses an etcd that it does not trust.
func TestTLS(t *testing.T) {
	t.Parallel()
	files := certificates(t)
	address := freeAddress(t)
	etcdtest.StartIn(t, etcdtest.Dir(t), "--listen-client-urls", "unix://etcd:1,https://"+address,
		"--cert-file", files.CertFile, "--key-file", files.KeyFile, "--trusted-ca-file", files.CAFile, "--client-cert-auth")
	s := openWith(t, "etcd://"+address, etcd.Config{Config: storetest.Config(), TLS: files})
	storetest.Put(t, s, key("a"), "1")

	for name, refused := range map[string]etcd.TLS{
		"no certificate": {CAFile: files.CAFile},
		"wrong CA":       {CAFile: certificates(t).CAFile, CertFile: files.CertFile, KeyFile: files.KeyFile},
		"no file":        {CAFile: "nowhere"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s, err := etcd.Open(ctx,
			etcd.Config{Config: storetest.Config(), TLS: refused, Endpoints: []string{"https://" + address}})
		if err == nil {
			t.Errorf("%s: connected", name)
			s.Close()
		}
	}
}

// freeAddress returns an address without a listener.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// certificates creates a CA and one certificate for both sides.
func certificates(t *testing.T) etcd.TLS {
	t.Helper()
	dir := t.TempDir()
	files := etcd.TLS{CAFile: filepath.Join(dir, "ca.crt"), CertFile: filepath.Join(dir, "a.crt"),
		KeyFile: filepath.Join(dir, "a.key")}
	now := time.Now()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: now,
		NotAfter: now.Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "a"}, NotBefore: now,
		NotAfter:    now.Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	caKey, leafKey := newKey(t), newKey(t)
	sign(t, files.CAFile, ca, ca, caKey, caKey)
	sign(t, files.CertFile, leaf, ca, leafKey, caKey)
	der, err := x509.MarshalECPrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, files.KeyFile, "EC PRIVATE KEY", der)
	return files
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sign(t *testing.T, path string, cert, parent *x509.Certificate, key, by *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, path, "CERTIFICATE", der)
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
