package entry

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// maxSANs is the maximum number of names and addresses in the serving certificate. They take about 3 KB in each
	// handshake.
	maxSANs = 128
	// maxExtraSANs is the maximum number of values of --tls-san.
	maxExtraSANs = 64
)

// Serving configures HTTPS.
type Serving struct {
	SANs              []string
	CertFile, KeyFile string // a certificate for some of the server's names; empty: none
	ClientCAFile      string // authorities of more client certificates; empty: none
}

// Flags adds the flags; all but --tls-san are kube-apiserver's.
func (s *Serving) Flags(f *pflag.FlagSet) {
	f.StringVar(&s.CertFile, "tls-cert-file", "",
		"File with an x509 certificate for HTTPS, and its intermediates. It is used for the names and addresses that it "+
			"contains, Monopod's own certificate for all others. Read at the start.")
	f.StringVar(&s.KeyFile, "tls-private-key-file", "", "File with the private key of --tls-cert-file.")
	f.StringVar(&s.ClientCAFile, "client-ca-file", "",
		"File with certificate authorities that sign client certificates, in addition to Monopod's own. "+
			"The common name is the user, the organizations are the groups.")
	f.StringSliceVar(&s.SANs, "tls-san", nil,
		"Comma-separated list of additional host names and IP addresses for the serving certificate, "+
			"for instance those of a load balancer or a DNS name.")
}

// Check returns an error for the first value that is not valid.
func (s *Serving) Check() error {
	if (s.CertFile == "") != (s.KeyFile == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file: set both or neither")
	}
	if len(s.SANs) > maxExtraSANs {
		return fmt.Errorf("--tls-san: at most %d names and addresses, got %d", maxExtraSANs, len(s.SANs))
	}
	for _, san := range s.SANs {
		if net.ParseIP(san) == nil && !isName(san) {
			return fmt.Errorf("--tls-san: %q is neither an IP address nor a DNS name", san)
		}
	}
	return nil
}

// isName reports whether a certificate can contain the name, which may start with "*.".
func isName(s string) bool {
	s = strings.ToLower(s)
	if digits := strings.Trim(s, "0123456789."); digits == "" { // a malformed address
		return false
	}
	return len(validation.IsDNS1123Subdomain(s)) == 0 || len(validation.IsWildcardDNS1123Subdomain(s)) == 0
}

// hosts returns the server's names and addresses, at most maxSANs. Addresses of interfaces come last, so that they are
// dropped first on a machine with very many.
func (a *Entry) hosts() []string {
	at := hostOf(a.Address)
	names := []string{"127.0.0.1", "::1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local"}
	names = append(names, a.cfg.Names...)
	if host, _, _ := net.SplitHostPort(a.cfg.Listen); isName(host) {
		names = append(names, host)
	}
	names = append(names, at, a.hostname())
	if host := hostOf(a.Kubelet); host != "" {
		names = append(names, a.cfg.Node, host)
	}
	everywhere := isUnspecified(at)
	if everywhere {
		names = append(names, a.cfg.Node)
	}
	names = append(names, a.dialled...)
	if everywhere || isUnspecified(hostOf(a.Kubelet)) {
		names = append(names, interfaceAddresses()...)
	}
	var out []string
	for _, name := range names {
		if ip, err := netip.ParseAddr(name); err == nil {
			if ip = ip.Unmap().WithZone(""); ip.IsUnspecified() {
				continue
			}
			name = ip.String()
		} else if name = strings.ToLower(name); !isName(name) {
			continue
		}
		if !slices.Contains(out, name) && len(out) < maxSANs {
			out = append(out, name)
		}
	}
	return out
}

// hostname returns the machine's current name, or an empty string if it is not a DNS name.
func (a *Entry) hostname() string {
	hostname := a.cfg.Hostname
	if hostname == nil {
		hostname = os.Hostname
	}
	name, err := hostname()
	if name = strings.ToLower(name); err != nil || !isName(name) {
		return ""
	}
	return name
}

// hostOf returns the host of host:port.
func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

func isUnspecified(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}

// interfaceAddresses returns the machine's current addresses, without link-local ones.
func interfaceAddresses() []string {
	addrs, _ := net.InterfaceAddrs() // on failure, handshakes add the addresses
	var out []string
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			out = append(out, n.IP.String())
		}
	}
	return out
}

// missingName returns the name or address that the client connected to, if it belongs to this machine and the
// certificate does not contain it. The local address of a connection always belongs to this machine, so that interfaces
// need not be watched.
func (a *Entry) missingName(hello *tls.ClientHelloInfo, has *tls.Certificate) string {
	if hello == nil {
		return ""
	}
	if hello.Conn != nil {
		if at, ok := hello.Conn.LocalAddr().(*net.TCPAddr); ok && !slices.ContainsFunc(has.Leaf.IPAddresses, at.IP.Equal) {
			return at.IP.String()
		}
	}
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if name != "" && !slices.Contains(has.Leaf.DNSNames, name) && name == a.hostname() {
		return name
	}
	return ""
}

// addName signs a serving certificate that also contains name. It drops older names only if there are more than
// maxSANs.
func (a *Entry) addName(name string) error {
	a.renewing.Lock()
	defer a.renewing.Unlock()
	old := a.current.Load()
	if ip := net.ParseIP(name); slices.ContainsFunc(old.serving.Leaf.IPAddresses, ip.Equal) ||
		slices.Contains(old.serving.Leaf.DNSNames, name) {
		return nil // another handshake did it first
	}
	a.dialled = slices.DeleteFunc(a.dialled, func(s string) bool { return s == name })
	a.dialled = slices.Insert(a.dialled, 0, name)
	if len(a.dialled) > maxSANs/4 {
		a.dialled = a.dialled[:maxSANs/4]
	}
	next := *old
	if err := a.sign(&next, a.cfg.Clock.Now()); err != nil {
		return err
	}
	a.current.Store(&next)
	return nil
}
