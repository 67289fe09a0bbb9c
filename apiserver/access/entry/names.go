package entry

import (
	"crypto/tls"
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
	// maxSANs bounds the names and addresses of the serving certificate: about 3 KB
	// in each handshake.
	maxSANs = 128
	// maxExtraSANs bounds those of --tls-san.
	maxExtraSANs = 64
)

// Serving is what an administrator says about HTTPS.
type Serving struct {
	SANs []string
}

// Flags adds --tls-san.
func (s *Serving) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&s.SANs, "tls-san", nil, "Comma-separated list of further host names and IP addresses for the serving certificate, as of a load balancer or a DNS name of this machine.")
}

// Check returns an error about the first value that no certificate can contain.
func (s *Serving) Check() error {
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

// isName says that a certificate can contain the name, which may start with "*.".
func isName(s string) bool {
	s = strings.ToLower(s)
	if digits := strings.Trim(s, "0123456789."); digits == "" { // an address with a mistake
		return false
	}
	return len(validation.IsDNS1123Subdomain(s)) == 0 || len(validation.IsWildcardDNS1123Subdomain(s)) == 0
}

// hosts are the names and addresses of the server, at most maxSANs of them. Those
// of the interfaces come last, the first to be left out on a machine with very many.
func (a *Entry) hosts() []string {
	at := hostOf(a.Address)
	names := []string{"127.0.0.1", "::1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	names = append(names, a.cfg.Names...)
	if host, _, _ := net.SplitHostPort(a.cfg.Listen); isName(host) {
		names = append(names, host)
	}
	names = append(names, at, hostname())
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

// hostname is the machine's name of this moment; empty where it is no DNS name.
func hostname() string {
	name, err := os.Hostname()
	if name = strings.ToLower(name); err != nil || !isName(name) {
		return ""
	}
	return name
}

// hostOf is the host of host:port.
func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

func isUnspecified(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}

// interfaceAddresses are the machine's addresses of this moment, but for those of
// one link alone.
func interfaceAddresses() []string {
	addrs, _ := net.InterfaceAddrs() // without any, handshakes tell
	var out []string
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			out = append(out, n.IP.String())
		}
	}
	return out
}

// missing is the name or address by which the client came in, if it is this
// machine's and the certificate does not contain it; empty: none. The address of
// the connection's own end is this machine's: the certificate follows all addresses
// without a look at them while nobody connects.
func missing(hello *tls.ClientHelloInfo, has *tls.Certificate) string {
	if hello == nil {
		return ""
	}
	if hello.Conn != nil {
		if at, ok := hello.Conn.LocalAddr().(*net.TCPAddr); ok && !slices.ContainsFunc(has.Leaf.IPAddresses, at.IP.Equal) {
			return at.IP.String()
		}
	}
	asked := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if asked != "" && !slices.Contains(has.Leaf.DNSNames, asked) && asked == hostname() {
		return asked
	}
	return ""
}

// include signs a serving certificate that contains name too. What it contained
// stays in it as long as there is room.
func (a *Entry) include(name string) error {
	a.renewing.Lock()
	defer a.renewing.Unlock()
	old := a.current.Load()
	if ip := net.ParseIP(name); slices.ContainsFunc(old.serving.Leaf.IPAddresses, ip.Equal) || slices.Contains(old.serving.Leaf.DNSNames, name) {
		return nil // another handshake was first
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
