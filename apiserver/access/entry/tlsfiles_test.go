package entry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clocktesting "k8s.io/utils/clock/testing"

	"monopod/apiserver/auth"
)

// writeGiven writes a certificate for these names, and the authority that signed it and the returned client
// certificate.
func writeGiven(t *testing.T, names ...string) (Serving, *auth.Authority, tls.Certificate) {
	t.Helper()
	dir := t.TempDir()
	authority, err := auth.OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Serving(may, names)
	if err != nil {
		t.Fatal(err)
	}
	s := Serving{CertFile: filepath.Join(dir, "s.crt"), KeyFile: filepath.Join(dir, "s.key"),
		ClientCAFile: filepath.Join(dir, "ca.crt")}
	if err := errors.Join(os.WriteFile(s.CertFile, pair.Cert, 0o600),
		os.WriteFile(s.KeyFile, pair.Key, 0o600)); err != nil {
		t.Fatal(err)
	}
	user, err := authority.Client(may, auth.User{Name: "jane", Groups: []string{"testers"}})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := parse(user)
	if err != nil {
		t.Fatal(err)
	}
	return s, authority, *cert
}

// TestGivenCertificates connects over loopback by address and by name: the server uses the given certificate for the
// names and addresses in it, and its own certificate for all others.
func TestGivenCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	serving, authority, user := writeGiven(t, "127.0.0.1", "box.example.com")
	a, err := Open(
		Config{Dir: dir, Listen: "127.0.0.1:0", Node: "n1", Serving: serving, Clock: clocktesting.NewFakeClock(may)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.tcp.Close(); a.unix.Close() })
	for name, pool := range map[string]*x509.CertPool{
		"127.0.0.1": authority.Pool(), "box.example.com": authority.Pool(), "kubernetes.default": a.authority.Pool(),
	} {
		if got, err := userOver(a,
			&tls.Config{ServerName: name, RootCAs: pool, Certificates: []tls.Certificate{user},
				Time: a.cfg.Clock.Now}); err != nil || got != "jane" {
			t.Errorf("%s: user %q, %v", name, got, err)
		}
	}
	own := readKubeconfig(t, dir) // it trusts both, because the server's address has the given one
	if got, err := userOver(a,
		&tls.Config{ServerName: "127.0.0.1", RootCAs: own.roots, Certificates: []tls.Certificate{own.pair},
			Time: a.cfg.Clock.Now}); err != nil || got != auth.Admin.Name {
		t.Errorf("with the kubeconfig: user %q, %v", got, err)
	}
	if _, _, stranger := writeGiven(t); userIs(a, stranger, authority.Pool()) {
		t.Error("a client certificate of another authority is accepted")
	}
}

func userIs(a *Entry, cert tls.Certificate, roots *x509.CertPool) bool {
	_, err := userOver(a,
		&tls.Config{ServerName: "127.0.0.1", RootCAs: roots, Certificates: []tls.Certificate{cert}, Time: a.cfg.Clock.Now})
	return err == nil
}

// userOver connects as cfg says and returns the user whom the server sees.
func userOver(a *Entry, cfg *tls.Config) (string, error) {
	l := tls.NewListener(a.tcp, a.tlsConfig())
	type seen struct {
		user string
		err  error
	}
	result := make(chan seen, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			result <- seen{err: err}
			return
		}
		defer conn.Close()
		server := conn.(*tls.Conn)
		err = server.Handshake()
		state := server.ConnectionState()
		u, _ := a.Authenticator().Authenticate(&http.Request{TLS: &state})
		result <- seen{u.Name, err}
	}()
	conn, err := net.Dial("tcp", a.Address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	err = tls.Client(conn, cfg).Handshake()
	got := <-result
	return got.user, errors.Join(err, got.err)
}

func TestGivenFilesAreChecked(t *testing.T) {
	t.Parallel()
	good, _, _ := writeGiven(t, "a.example.com")
	for want, s := range map[string]Serving{
		"--tls-cert-file and --tls-private-key-file: set both or neither": {CertFile: good.CertFile},
		"--tls-cert-file: open /nowhere: no such file or directory":       {CertFile: "/nowhere", KeyFile: good.KeyFile},
		"--tls-cert-file: tls: private key does not match public key": {CertFile: good.ClientCAFile,
			KeyFile: good.KeyFile},
		"--client-ca-file: open /nowhere: no such file or directory":      {ClientCAFile: "/nowhere"},
		"--client-ca-file: " + good.KeyFile + " contains no certificates": {ClientCAFile: good.KeyFile},
	} {
		err := s.Check()
		if err == nil {
			_, err = s.read()
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
