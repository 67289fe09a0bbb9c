package entry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"monopod/apiserver/auth"
)

// A machine that knows only the hash of the authority verifies the server in the handshake, before it sends anything.
func TestHandshakeShowsTheAuthority(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(may)
	a := opened(t, t.TempDir(), clock)
	block, _ := pem.Decode(a.CA)
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"at the start":             func() error { return nil },
		"with another address":     func() error { return a.addName("192.0.2.7") },
		"after a rotation":         a.Rotate,
		"after it was renewed":     func() error { clock.Step(9 * year); return a.renew() },
		"after it was not renewed": a.renew,
	} {
		if err := change(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		near, far := net.Pipe()
		server := tls.Server(near, a.tlsConfig())
		client := tls.Client(far, &tls.Config{InsecureSkipVerify: true}) // as a machine that joins
		done := make(chan error, 1)
		go func() { done <- server.Handshake() }()
		if err := client.Handshake(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		chain := client.ConnectionState().PeerCertificates
		near.Close()
		<-done
		if len(chain) != 2 || auth.CAHash(chain[1]) != auth.CAHash(ca) {
			t.Fatalf("%s: a chain of %d certificates does not end with the authority", name, len(chain))
		}
		roots := x509.NewCertPool()
		roots.AddCert(chain[1])
		verify := x509.VerifyOptions{Roots: roots, DNSName: "localhost", CurrentTime: clock.Now()}
		if _, err := chain[0].Verify(verify); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Kubelets of other machines have certificates of an authority that clients of the API do not trust. It exists only
// after it was needed, and all servers on one state use the same one.
func TestKubeletAuthority(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{DNSNames: []string{"n2"}, NotAfter: may.Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	trusts := func(t *testing.T, roots *x509.CertPool, issued []byte) bool {
		t.Helper()
		block, _ := pem.Decode(issued)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		_, err = cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "n2", CurrentTime: may})
		return err == nil
	}
	kubelets := func(t *testing.T, a *Entry) *x509.CertPool {
		t.Helper()
		config, err := a.Kubelets()
		if err != nil {
			t.Fatal(err)
		}
		return config.RootCAs
	}
	t.Run("of one server", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		a := opened(t, dir, clocktesting.NewFakeClock(may))
		kubelets(t, a)
		if _, err := os.Stat(filepath.Join(dir, "pki", "kubelet-ca.crt")); err == nil {
			t.Error("the authority exists before its first use")
		}
		issued, err := a.SignKubelet(template, &key.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		if trusts(t, a.authority.Pool(), issued) {
			t.Error("clients of the API trust the certificate of a kubelet")
		}
		again := opened(t, dir, clocktesting.NewFakeClock(may)) // after a restart
		for _, a := range []*Entry{a, again} {
			if !trusts(t, kubelets(t, a), issued) {
				t.Error("the server does not trust the certificate of a kubelet")
			}
		}
	})
	t.Run("of several servers", func(t *testing.T) {
		t.Parallel()
		agreed := map[string][]byte{}
		agree := func(name string, mine []byte) ([]byte, error) {
			if agreed[name] == nil {
				agreed[name] = mine
			}
			return agreed[name], nil
		}
		first, second := t.TempDir(), t.TempDir()
		a, b := opened(t, first, clocktesting.NewFakeClock(may)), opened(t, second, clocktesting.NewFakeClock(may))
		a.cfg.Agree, b.cfg.Agree = agree, agree
		issued, err := a.SignKubelet(template, &key.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		if !trusts(t, kubelets(t, b), issued) {
			t.Error("the other server does not trust the certificate of a kubelet")
		}
	})
}

func TestExternal(t *testing.T) {
	t.Parallel()
	for listens, want := range map[string]string{
		"127.0.0.1:6443": "", "[::1]:6443": "", "192.0.2.7:6443": "192.0.2.7:6443", "[2001:db8::7]:6443": "[2001:db8::7]:6443",
	} {
		a := &Entry{Address: listens, pods: podListen{moved: make(chan struct{})}}
		a.pods.set(netip.MustParseAddrPort("10.85.0.1:6443")) // a server on loopback also serves pods
		if got := a.External(); got != want {
			t.Errorf("%s: %q, want %q", listens, got, want)
		}
	}
}
