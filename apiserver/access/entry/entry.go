// Package entry serves clients: the listeners, the certificates and tokens below pki/, and the kubeconfig.
package entry

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/local"
)

// Config configures an Entry. Dir, Listen and Node are required.
type Config struct {
	Dir     string   // the folder that contains pki/, admin.kubeconfig and monopod.sock
	Listen  string   // host:port of HTTPS
	Kubelet string   // host:port of the kubelet's HTTPS API; empty: disabled
	Node    string   // the name of the node that uses pki/node.token
	Names   []string // additional names for the server's certificate
	Serving Serving  // the files of HTTPS; its SANs are part of Names
	Clock   clock.WithTicker
	// Hostname returns the current name of the machine; nil: os.Hostname.
	Hostname func() (string, error)
	Guard    *guard.Guard // nil: panics are only recovered
	// Agree returns the value of a name that all servers of the installation use: that of the first one that called it;
	// nil: there is one server.
	Agree func(name string, mine []byte) (ours []byte, err error)
}

// Entry accepts clients over HTTPS, which have a token or certificate below pki/, and over a Unix socket that only its
// owner can open. It renews its certificates.
type Entry struct {
	Address string // host:port of HTTPS
	Kubelet string // host:port of the kubelet's API; empty: disabled
	CA      []byte // PEM
	// Problems contains the errors about files that were not updated because the disk is full; the old files still work.
	Problems []error

	cfg       Config
	tcp, unix net.Listener
	kubelet   net.Listener // nil: none
	pods      podListen
	authority *auth.Authority
	files     tlsFiles

	renewing sync.Mutex // one at a time; guards Problems and dialled
	dialled  []string   // names and addresses that clients connected to, newest first
	current  atomic.Pointer[credentials]

	opening  sync.Mutex      // guards kubelets
	kubelets *auth.Authority // nil: not opened yet
}

// Open opens the listeners and writes the files that clients need. The caller holds the lock of the data folder.
func Open(cfg Config) (*Entry, error) {
	tcp, err := listen("listen", cfg.Listen)
	if err != nil {
		return nil, err
	}
	socket, err := local.Listen(cfg.Dir)
	if err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	a := &Entry{Address: tcp.Addr().String(), cfg: cfg, tcp: tcp, unix: socket,
		pods: podListen{serving: make(chan struct{}), moved: make(chan struct{})}}
	if cfg.Kubelet != "" {
		if a.kubelet, err = listen("kubelet-listen", cfg.Kubelet); err != nil {
			return nil, errors.Join(err, tcp.Close(), socket.Close())
		}
		a.Kubelet = a.kubelet.Addr().String()
	}
	if a.files, err = cfg.Serving.read(); err == nil {
		a.authority, err = auth.OpenAuthority(a.pki())
	}
	if err == nil {
		a.CA = a.authority.PEM
		err = a.renew()
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *Entry) close() error {
	err := errors.Join(a.tcp.Close(), a.unix.Close())
	if a.kubelet != nil {
		err = errors.Join(err, a.kubelet.Close())
	}
	return err
}

func (a *Entry) pki(name ...string) string {
	return filepath.Join(append([]string{a.cfg.Dir, "pki"}, name...)...)
}

// tolerateFullDisk records an error in Problems if its cause is a full disk, and returns other errors.
func (a *Entry) tolerateFullDisk(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		a.Problems = append(a.Problems, err)
		return nil
	}
	return err
}

// tlsConfig returns the server's TLS configuration. A client certificate is optional, and verified if it is sent.
func (a *Entry) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: a.certificate, Time: a.cfg.Clock.Now,
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: a.files.clientCAs(a.authority.Pool()),
	}
}

// Advertised returns the address for clients on other machines: the address that the server listens on or, if it
// listens on all addresses, that of the default route. Without a default route it is a loopback address, which no other
// machine can reach. If the server listens on loopback, it is the address for pods of this machine, if there is one.
func (a *Entry) Advertised() (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(a.Address)
	if err != nil {
		return at, err
	}
	pods, _ := a.pods.get()
	if pods.IsValid() && !reachable(at.Addr(), pods.Addr()) {
		return pods, nil
	}
	if !at.Addr().IsUnspecified() {
		return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()), nil
	}
	preferred := net.IPv4zero
	if pods.Addr().Is6() {
		preferred = net.IPv6zero
	}
	found, err := utilnet.ResolveBindAddress(preferred)
	host, ok := netip.AddrFromSlice(found)
	if host = host.Unmap(); pods.IsValid() && (err != nil || !ok || host.Is4() != pods.Addr().Is4()) {
		return pods, nil
	}
	if err != nil || !ok {
		host = netip.IPv6Loopback()
	}
	return netip.AddrPortFrom(host, at.Port()), nil
}

// External returns the address for clients on other machines as host:port, or an empty string if there is none: the
// server listens on loopback, or the machine has no default route.
func (a *Entry) External() string {
	at := a.Listens()
	if at.Addr().IsUnspecified() {
		found, err := a.Advertised()
		if pods, _ := a.pods.get(); err != nil || found == pods {
			return ""
		}
		at = found
	}
	if at.Addr().IsLoopback() {
		return ""
	}
	return at.String()
}

// Reachable returns an address for clients on this machine.
func (a *Entry) Reachable() string {
	host, port, _ := net.SplitHostPort(a.Address)
	if isUnspecified(host) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(strings.ReplaceAll(host, "%", "%25"), port) // a URL escapes the zone of an address
}

// Listens returns Address without a zone.
func (a *Entry) Listens() netip.AddrPort {
	at, _ := netip.ParseAddrPort(a.Address) // a listener's address always parses
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// KubeletPort returns the port of Kubelet, or 0 if it is disabled.
func (a *Entry) KubeletPort() int32 {
	at, err := netip.ParseAddrPort(a.Kubelet)
	if err != nil {
		return 0
	}
	return int32(at.Port())
}

// Certificates describes the certificates in use, and that of the authority of kubelets, if there is one.
func (a *Entry) Certificates() []auth.Certificate {
	c := a.current.Load()
	all := []auth.Certificate{
		auth.CertificateOf("server", c.serving.Leaf), auth.CertificateOf("admin", c.admin.Leaf),
	}
	kubelets, _ := os.ReadFile(a.pki("kubelet-ca.crt")) // none before the first use
	for _, of := range []struct {
		name string
		pem  []byte
	}{{"authority", a.CA}, {"kubelet-authority", kubelets}} {
		for block, rest := pem.Decode(of.pem); block != nil; block, rest = pem.Decode(rest) {
			if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
				all = append(all, auth.CertificateOf(of.name, cert))
			}
		}
	}
	return all
}

// Node returns the name of the node that uses pki/node.token and whose kubelet API is served.
func (a *Entry) Node() string { return a.cfg.Node }
