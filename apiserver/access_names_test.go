package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/utils/clock"
)

// Pods verify the server by the address of its Service, and by its names.
func TestCertificateHoldsForTheService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	a, err := OpenAccess(AccessConfig{
		Dir: dir, Listen: "127.0.0.1:0", Node: "n1", Names: []string{"10.96.0.1"}, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.tcp.Close()
		a.unix.Close()
	})
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM(a.CA)
	for name, good := range map[string]bool{
		"10.96.0.1": true, "kubernetes.default.svc.cluster.local": true, "kubernetes.default.svc": true, "127.0.0.1": true,
		"10.96.0.2": false, "example.com": false,
	} {
		server, client := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- tls.Server(server, a.tlsConfig()).Handshake() }()
		conn := tls.Client(client, &tls.Config{RootCAs: authority, ServerName: name, MinVersion: tls.VersionTLS12})
		if err := conn.Handshake(); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
		client.Close()
		<-done
		server.Close()
	}
}

func TestAdvertised(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"127.0.0.1:6443": "127.0.0.1:6443", "192.0.2.1:1": "192.0.2.1:1", "[::ffff:192.0.2.1]:1": "192.0.2.1:1", "[2001:db8::1]:6443": "[2001:db8::1]:6443",
	} {
		if got, err := (&Access{Address: address}).Advertised(); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v, want %s", address, got, err, want)
		}
	}
	everywhere, err := (&Access{Address: "[::]:6443"}).Advertised()
	if err != nil || everywhere.Addr().IsUnspecified() || everywhere.Port() != 6443 {
		t.Errorf("got %s, %v", everywhere, err)
	}
}
