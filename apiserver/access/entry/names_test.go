package entry

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/utils/clock"
)

// Pods can verify the server by the address and the names of its Service.
func TestCertificateIsValidForService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	a, err := Open(Config{
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
		"127.0.0.1:6443": "127.0.0.1:6443", "192.0.2.1:1": "192.0.2.1:1", "[::ffff:192.0.2.1]:1": "192.0.2.1:1",
		"[2001:db8::1]:6443": "[2001:db8::1]:6443",
	} {
		if got, err := (&Entry{Address: address}).Advertised(); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v, want %s", address, got, err, want)
		}
	}
	everywhere, err := (&Entry{Address: "[::]:6443"}).Advertised()
	if err != nil || everywhere.Addr().IsUnspecified() || everywhere.Port() != 6443 {
		t.Errorf("got %s, %v", everywhere, err)
	}
}

// The certificate of a server that listens on all addresses contains the machine's addresses. An address that the
// machine gets later is added at the first connection to it.
func TestCertificateFollowsTheMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	var machine atomic.Pointer[string] // its hostname
	machine.Store(new("First.example.com"))
	a, err := Open(Config{
		Dir: dir, Listen: "0.0.0.0:0", Node: "n1", Names: []string{"box.example.com", "192.0.2.7"}, Clock: clock.RealClock{},
		Hostname: func() (string, error) { return *machine.Load(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	l := tls.NewListener(plainListener{a.tcp}, a.tlsConfig())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.(*tls.Conn).Handshake()
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		a.unix.Close()
		<-done
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CA)
	_, port, _ := net.SplitHostPort(a.Address)
	dial := func(to, name string) error {
		conn, err := tls.Dial("tcp", net.JoinHostPort(to, port), &tls.Config{RootCAs: roots, ServerName: name,
			MinVersion: tls.VersionTLS12})
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	names := []string{"127.0.0.1", "localhost", "n1", "box.example.com", "192.0.2.7", "kubernetes.default.svc",
		"first.example.com"}
	for _, name := range append(names, interfaceAddresses()...) {
		if err := dial("127.0.0.1", name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if slices.ContainsFunc(a.current.Load().serving.Leaf.IPAddresses, net.IP.IsUnspecified) {
		t.Error("the certificate contains an address that cannot be dialled")
	}
	if err := dial("127.0.0.1", "127.9.9.9"); err == nil {
		t.Error("an address that was never dialled is in the certificate")
	}
	if err := dial("127.9.9.9", "127.9.9.9"); err != nil {
		t.Errorf("a new address: %v", err)
	}
	machine.Store(new("Second.example.com"))
	names[len(names)-1] = "second.example.com"
	if err := dial("127.0.0.1", "second.example.com"); err != nil {
		t.Errorf("after the machine was renamed: %v", err)
	}
	if err := dial("127.0.0.1", "third.example.com"); err == nil {
		t.Error("a name that the machine does not have is in the certificate")
	}
	at := a.current.Load()
	for range 3 {
		if err := dial("127.9.9.9", "127.9.9.9"); err != nil {
			t.Error(err)
		}
	}
	if a.current.Load() != at {
		t.Error("signed again for an address that the certificate contains")
	}
	for i := range 200 { // more than maxSANs
		to := netip.AddrFrom4([4]byte{127, 8, 1, byte(i)}).String()
		if err := dial(to, to); err != nil {
			t.Fatalf("%s: %v", to, err)
		}
	}
	leaf := a.current.Load().serving.Leaf
	if n := len(leaf.IPAddresses) + len(leaf.DNSNames); n > maxSANs {
		t.Errorf("the certificate has %d names and addresses", n)
	}
	for _, name := range names {
		if err := dial("127.0.0.1", name); err != nil {
			t.Errorf("%s after many others: %v", name, err)
		}
	}
	if err := a.Rotate(); err != nil {
		t.Fatal(err)
	}
	if err := dial("127.8.1.199", "127.8.1.199"); err != nil {
		t.Errorf("after a rotation: %v", err)
	}
	if data := kubeconfig(t, dir); !bytes.Contains(data, []byte("https://127.0.0.1:"+port)) {
		t.Errorf("the kubeconfig names another address:\n%s", data)
	}
}

func TestServingCheck(t *testing.T) {
	t.Parallel()
	many := make([]string, maxExtraSANs+1)
	for i := range many {
		many[i] = "a.example.com"
	}
	for _, c := range []struct {
		sans []string
		want string // part of the error; empty: no error
	}{
		{nil, ""},
		{[]string{"box.local", "BOX", "*.example.com", "192.0.2.1", "2001:db8::1"}, ""},
		{[]string{"192.0.2.1", "no name"}, `--tls-san: "no name" is neither an IP address nor a DNS name`},
		{[]string{""}, `--tls-san: "" is neither`},
		{[]string{"10.0.0.256"}, `--tls-san: "10.0.0.256" is neither`},
		{[]string{"https://box"}, `--tls-san: "https://box" is neither`},
		{[]string{"box:6443"}, `--tls-san: "box:6443" is neither`},
		{many, "--tls-san: at most 64 names and addresses, got 65"},
	} {
		err := (&Serving{SANs: c.sans}).Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %s", c.sans, err, c.want)
		}
	}
}

// The kubeconfig and the first log lines contain an address that a client can connect to.
func TestReachable(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"[::]:6443": "127.0.0.1:6443", "0.0.0.0:1": "127.0.0.1:1", "192.0.2.1:6443": "192.0.2.1:6443",
		"[2001:db8::1]:6443": "[2001:db8::1]:6443", "[fe80::1%eth0]:6443": "[fe80::1%25eth0]:6443",
	} {
		if got := (&Entry{Address: address}).Reachable(); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}
