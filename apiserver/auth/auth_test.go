package auth_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"monopod/apiserver/auth"
)

var now = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

func TestToken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		token, authorization string
		ok                   bool
	}{
		"bearer":             {"s3cret", "Bearer s3cret", true},
		"scheme in any case": {"s3cret", "bearer  s3cret ", true},
		"nothing":            {"s3cret", "", false},
		"wrong":              {"s3cret", "Bearer other", false},
		"prefix":             {"s3cret", "Bearer s3", false},
		"another scheme":     {"s3cret", "Basic s3cret", false},
		"no token is set":    {"", "Bearer ", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if c.authorization != "" {
				r.Header.Set("Authorization", c.authorization)
			}
			if user, ok := auth.Token(c.token, auth.Admin).Authenticate(r); ok != c.ok || ok && user.Name != auth.Admin.Name {
				t.Errorf("got %v %t", user, ok)
			}
		})
	}
}

// Certificates of one authority authenticate both sides of a handshake, also if the clock was in 1970 when the
// authority signed them.
func TestCertificates(t *testing.T) {
	t.Parallel()
	authority, err := auth.OpenAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Time{now, time.Unix(0, 0)} {
		user, err := handshake(t, authority, authority, at)
		if err != nil || user.Name != auth.Admin.Name || len(user.Groups) == 0 || user.Groups[0] != auth.Masters {
			t.Errorf("signed at %v: %v, %v", at, user, err)
		}
	}
	other, err := auth.OpenAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if user, err := handshake(t, authority, other, now); err == nil {
		t.Errorf("a certificate of another authority authenticates %v", user)
	}
}

// A certificate is valid from the time that its requester needs, and always if the clock was not set.
func TestValidity(t *testing.T) {
	t.Parallel()
	authority, err := auth.OpenAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Unix(0, 0)
	for _, c := range []struct{ at, from, want time.Time }{
		{now, time.Time{}, began}, {now, now, now}, {began.Add(time.Hour), began.Add(time.Minute), began},
	} {
		template := x509.Certificate{NotBefore: c.from, NotAfter: c.at.Add(time.Hour)}
		signed, err := authority.Sign(c.at, template, key.Public())
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(signed)
		x, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if !x.NotBefore.Equal(c.want.Truncate(time.Second)) || !x.NotAfter.After(c.at) {
			t.Errorf("signed at %v: valid from %v to %v", c.at, x.NotBefore, x.NotAfter)
		}
	}
}

// Requests on one connection share its certificate, so nothing may write to it.
func TestCertificatesAreReadOnly(t *testing.T) {
	t.Parallel()
	groups := append(make([]string, 0, 2), "a")
	r := &http.Request{TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{
		{{Subject: pkix.Name{CommonName: "ann", Organization: groups}}}}}}
	if u, ok := auth.Certificates().Authenticate(r); !ok || len(u.Groups) != 2 || groups[:2][1] != "" {
		t.Errorf("%v, %v; the certificate has %q", u, ok, groups[:2])
	}
}

// handshake returns the user whom a server of one authority authenticates for a client of another.
func handshake(t *testing.T, server, client *auth.Authority, at time.Time) (auth.User, error) {
	t.Helper()
	serving, err := server.Serving(at, []string{"127.0.0.1", "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.Client(at, auth.Admin)
	if err != nil {
		t.Fatal(err)
	}
	clock := func() time.Time { return now }
	near, far := net.Pipe()
	s := tls.Server(near, &tls.Config{Certificates: []tls.Certificate{pair(t, serving)},
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: server.Pool(), Time: clock})
	c := tls.Client(far,
		&tls.Config{Certificates: []tls.Certificate{pair(t, admin)}, RootCAs: server.Pool(), ServerName: "localhost",
			Time: clock})
	done := make(chan error, 1)
	go func() {
		err := c.Handshake()
		if err == nil {
			_, err = c.Read(make([]byte, 1)) // the server refuses after the client's part of the handshake
		}
		c.Close()
		done <- err
	}()
	err = s.Handshake()
	state := s.ConnectionState()
	near.Close()
	<-done
	if err != nil {
		return auth.User{}, err
	}
	user, ok := auth.Certificates().Authenticate(&http.Request{TLS: &state})
	if !ok {
		return user, errors.New("not known")
	}
	return user, nil
}

func pair(t *testing.T, p auth.Pair) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The admin's certificate is kept for years, and replaced before it expires or when the authority has changed.
func TestKeepClient(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keep := func(at time.Time) []byte {
		t.Helper()
		authority, err := auth.OpenAuthority(dir)
		if err != nil {
			t.Fatal(err)
		}
		p, err := authority.KeepClient(filepath.Join(dir, "admin"), at, auth.Admin)
		if err != nil {
			t.Fatal(err)
		}
		return p.Cert
	}
	first := keep(now)
	if !bytes.Equal(keep(now.AddDate(7, 0, 0)), first) {
		t.Error("replaced after seven years")
	}
	later := keep(now.AddDate(9, 0, 0))
	if bytes.Equal(later, first) {
		t.Error("kept after nine years")
	}
	for _, name := range []string{"ca.crt", "ca.key"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Equal(keep(now.AddDate(9, 0, 0)), later) {
		t.Error("kept under another authority")
	}
}

// Token files are readable by their owner only, and read back.
func TestOpenToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	first, err := auth.OpenToken(path)
	if err != nil || len(first) != 32 {
		t.Fatalf("%q, %v", first, err)
	}
	if again, err := auth.OpenToken(path); err != nil || again != first {
		t.Errorf("%q, %v", again, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
