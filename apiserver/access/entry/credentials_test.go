package entry

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/auth"
)

const year = 365 * 24 * time.Hour

var may = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

// opened returns an Entry with a clock that the test sets.
func opened(t *testing.T, dir string, clock *clocktesting.FakeClock) *Entry {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	a, err := Open(Config{Dir: dir, Listen: "127.0.0.1:0", Node: "n1", Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.tcp.Close()
		a.unix.Close()
	})
	return a
}

// identity is the content of the kubeconfig.
type identity struct {
	token string
	pair  tls.Certificate
	roots *x509.CertPool
}

func readKubeconfig(t *testing.T, dir string) (k identity) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Clusters []struct {
			Cluster map[string]string `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User map[string]string `json:"user"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	decode := func(text string) []byte {
		out, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	user := config.Users[0].User
	k.token, k.roots = user["token"], x509.NewCertPool()
	k.roots.AppendCertsFromPEM(decode(config.Clusters[0].Cluster["certificate-authority-data"]))
	if k.pair, err = tls.X509KeyPair(decode(user["client-certificate-data"]),
		decode(user["client-key-data"])); err != nil {
		t.Fatal(err)
	}
	return k
}

// shake does a handshake with the credentials of a kubeconfig, and returns the user by certificate and by token.
func shake(t *testing.T, a *Entry, k identity) (byCertificate, byToken string, err error) {
	t.Helper()
	near, far := net.Pipe()
	server := tls.Server(near, a.tlsConfig())
	client := tls.Client(far,
		&tls.Config{Certificates: []tls.Certificate{k.pair}, RootCAs: k.roots, ServerName: "localhost",
			Time: a.cfg.Clock.Now})
	done := make(chan error, 1)
	go func() {
		err := client.Handshake()
		if err == nil {
			client.Read(make([]byte, 1)) // wait for the server
		}
		far.Close()
		done <- err
	}()
	err = server.Handshake()
	state := server.ConnectionState()
	near.Close()
	if err = errors.Join(err, <-done); err != nil {
		return "", "", err
	}
	if u, ok := a.Authenticator().Authenticate(&http.Request{TLS: &state}); ok {
		byCertificate = u.Name
	}
	if u, ok := a.Authenticator().Authenticate(
		&http.Request{Header: http.Header{"Authorization": {"Bearer " + k.token}}}); ok {
		byToken = u.Name
	}
	return byCertificate, byToken, nil
}

func comesIn(t *testing.T, a *Entry, dir, when string) {
	t.Helper()
	cert, token, err := shake(t, a, readKubeconfig(t, dir))
	if err != nil || cert != auth.Admin.Name || token != auth.Admin.Name {
		t.Errorf("%s: by certificate %q, by token %q, %v", when, cert, token, err)
	}
}

// A server that is never restarted renews its certificates for decades. Clients can connect to a server whose clock is
// wrong at start as soon as the clock is right.
func TestCertificatesFollowTheClock(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]time.Time{
		"now": may, "1970": time.Unix(100, 0), "2015": time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC),
		"far ahead": may.Add(60 * year), "after the authority's end": may.Add(150 * year),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, clock := t.TempDir(), clocktesting.NewFakeClock(start)
			a := opened(t, dir, clock)
			clock.SetTime(may)
			shake(t, a, readKubeconfig(t, dir)) // the first client may read an old kubeconfig
			comesIn(t, a, dir, "when the clock is right")
			before := a.current.Load().serving
			clock.SetTime(may.Add(7 * year))
			comesIn(t, a, dir, "after seven years")
			if a.current.Load().serving != before {
				t.Error("the certificate was renewed before 80 % of its lifetime")
			}
			for _, years := range []time.Duration{9, 30, 80, 5} {
				clock.SetTime(may.Add(years * year))
				shake(t, a, readKubeconfig(t, dir))
				comesIn(t, a, dir, clock.Now().String())
			}
			if left := a.current.Load().serving.Leaf.NotAfter.Sub(clock.Now()); left > 11*year {
				t.Errorf("the certificate remains valid for %v, want at most 11 years", left)
			}
		})
	}
}

// An expiring certificate is renewed even if no client connects.
func TestRunRenews(t *testing.T) {
	t.Parallel()
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(may)
	a := opened(t, dir, clock)
	before := readKubeconfig(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, zap.NewNop()) }()
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	for first := a.current.Load(); a.current.Load() == first; {
		clock.Step(9 * year / 10)
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if after := readKubeconfig(t, dir); after.pair.Leaf.Equal(before.pair.Leaf) || after.token != before.token {
		t.Error("the kubeconfig was not updated")
	}
}

// After a rotation the old certificate and token are invalid.
func TestRotate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := opened(t, dir, clocktesting.NewFakeClock(may))
	old, serving := readKubeconfig(t, dir), a.current.Load().serving
	comesIn(t, a, dir, "before")
	if err := a.Rotate(); err != nil {
		t.Fatal(err)
	}
	comesIn(t, a, dir, "after")
	if cert, token, err := shake(t, a, old); err != nil || cert != "" || token != "" {
		t.Errorf("the old certificate authenticates %q, the old token %q, %v", cert, token, err)
	}
	if a.current.Load().serving == serving {
		t.Error("the serving certificate was not replaced")
	}
	if all := a.Certificates(); len(all) != 3 || all[1].Name != "admin" || !strings.Contains(all[1].Subject,
		auth.Admin.Name) {
		t.Errorf("%+v", all)
	}
}

// Clients that trust the old authority can connect after the authority was replaced.
// Requests to kubelets, which may come at once, use one certificate, which Rotate replaces.
func TestKubelets(t *testing.T) {
	t.Parallel()
	a := opened(t, t.TempDir(), clocktesting.NewFakeClock(may))
	var last []byte
	for range 2 {
		found := make(chan []byte, 8)
		for range cap(found) {
			go func() {
				config, err := a.Kubelets()
				if err != nil {
					t.Error(err)
					found <- nil
					return
				}
				found <- config.Certificates[0].Certificate[0]
			}()
		}
		first := <-found
		for range cap(found) - 1 {
			if !bytes.Equal(<-found, first) {
				t.Error("concurrent requests have different certificates")
			}
		}
		if bytes.Equal(first, last) {
			t.Error("Rotate did not replace the certificate")
		}
		last = first
		if err := a.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewAuthority(t *testing.T) {
	t.Parallel()
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(may)
	old := opened(t, dir, clock)
	before := readKubeconfig(t, dir)
	old.tcp.Close()
	old.unix.Close()
	if err := auth.NewAuthority(filepath.Join(dir, "pki")); err != nil {
		t.Fatal(err)
	}
	a := opened(t, dir, clock)
	comesIn(t, a, dir, "with the new authority")
	now := readKubeconfig(t, dir)
	if a.authority == nil || now.pair.Leaf.Equal(before.pair.Leaf) || strings.Count(string(a.CA), "BEGIN") != 2 {
		t.Errorf("authority: %s", a.CA)
	}
	chain := x509.VerifyOptions{Roots: a.authority.Pool(), CurrentTime: may,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := before.pair.Leaf.Verify(chain); err != nil {
		t.Errorf("a certificate that the old authority signed: %v", err)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := opened(t, dir, clocktesting.NewFakeClock(may))
	for file, want := range map[string]string{
		"admin.token": "kubernetes-admin [system:masters system:authenticated]",
		"view.token":  "monopod-viewer [system:monopod:viewers system:authenticated]",
		"node.token":  "system:node:n1 [system:nodes system:authenticated]",
	} {
		data, err := os.ReadFile(filepath.Join(dir, "pki", file))
		if err != nil {
			t.Fatal(err)
		}
		u, ok := a.Authenticator().Authenticate(
			&http.Request{Header: http.Header{"Authorization": {"Bearer " + strings.TrimSpace(string(data))}}})
		if got := u.Name + " [" + strings.Join(u.Groups, " ") + "]"; !ok || got != want {
			t.Errorf("%s: %s", file, got)
		}
	}
}
