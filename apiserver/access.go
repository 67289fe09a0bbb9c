package apiserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"monopod/apiserver/auth"
)

// maxSocketPath is the longest path of a Unix socket on Linux (sun_path).
const maxSocketPath = 107

// Access is how clients come in: over HTTPS with the token or the certificate
// in admin.kubeconfig, and through a Unix socket that only its owner can open.
type Access struct {
	Address string // of HTTPS, as host:port
	Token   string
	CA      []byte // PEM
	// Problems kept something from being written that was there before and can do:
	// the disk is full.
	Problems []error

	names     []string // beside those of hosts
	tcp, unix net.Listener
	tls       *tls.Config
}

// OpenAccess opens both listeners and writes what clients need below dir: pki/,
// admin.kubeconfig, monopod.sock. The caller holds the folder's lock.
// The server's certificate also holds for the names in more.
func OpenAccess(dir, listen string, now time.Time, more ...string) (*Access, error) {
	tcp, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	socket, err := listenUnix(filepath.Join(dir, "monopod.sock"))
	if err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	a := &Access{Address: tcp.Addr().String(), tcp: tcp, unix: socket, names: more}
	if err := a.prepare(dir, now); err != nil {
		return nil, errors.Join(err, tcp.Close(), socket.Close())
	}
	return a, nil
}

// prepare reads or makes the keys and tells them to the kubeconfig.
func (a *Access) prepare(dir string, now time.Time) error {
	pki := filepath.Join(dir, "pki")
	authority, err := auth.OpenAuthority(pki)
	if err != nil {
		return err
	}
	a.CA = authority.PEM
	if a.Token, err = auth.OpenToken(filepath.Join(pki, "admin.token")); err != nil {
		return err
	}
	admin, err := authority.KeepClient(filepath.Join(pki, "admin"), now, auth.Admin)
	if err = a.bear(err); err != nil {
		return err
	}
	if a.tls, err = tlsConfig(authority, a.hosts(), now); err != nil {
		return err
	}
	kubeconfig, err := auth.Kubeconfig("https://"+a.reachable(), authority.PEM, admin, a.Token)
	if err != nil {
		return err
	}
	return a.bear(auth.WriteKubeconfig(filepath.Join(dir, "admin.kubeconfig"), kubeconfig))
}

// bear makes a problem of an error that a full disk is the cause of.
func (a *Access) bear(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		a.Problems = append(a.Problems, err)
		return nil
	}
	return err
}

// tlsConfig is the server's side of a handshake: a certificate made for this
// run, and client certificates verified where one is sent.
func tlsConfig(authority *auth.Authority, hosts []string, now time.Time) (*tls.Config, error) {
	serving, err := authority.Serving(now, hosts)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.VerifyClientCertIfGiven, ClientCAs: authority.Pool(),
	}, nil
}

// hosts are the names the server goes by.
func (a *Access) hosts() []string {
	host, _, _ := net.SplitHostPort(a.Address)
	names := []string{"127.0.0.1", "::1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", host}
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	return append(names, a.names...)
}

// Advertised is where others than this machine find the server: where it listens,
// and when that is everywhere, at the address of the default route. Without a
// route it is loopback's, which nobody else reaches.
func (a *Access) Advertised() (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(a.Address)
	if err != nil {
		return at, err
	}
	if !at.Addr().IsUnspecified() {
		return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()), nil
	}
	found, err := utilnet.ResolveBindAddress(net.IPv4zero)
	host, ok := netip.AddrFromSlice(found)
	if err != nil || !ok {
		host = netip.IPv6Loopback()
	}
	return netip.AddrPortFrom(host.Unmap(), at.Port()), nil
}

// reachable is the address as a client on this machine can use it.
func (a *Access) reachable() string {
	host, port, _ := net.SplitHostPort(a.Address)
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// Authenticator knows those who come in.
func (a *Access) Authenticator() auth.Authenticator {
	return auth.Any(auth.Listener(), auth.Certificates(), auth.Token(a.Token, auth.Admin))
}

// listenUnix opens the socket at path for its owner alone. One left behind by a
// process that died is replaced; the caller holds the data folder's lock.
func listenUnix(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%s: the path of a socket has at most %d bytes, this one has %d: choose a shorter --data-dir", path, maxSocketPath, len(path))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
