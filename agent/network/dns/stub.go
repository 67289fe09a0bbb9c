package dns

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxStubs bounds the number of zones with resolvers of their own.
const maxStubs = 100

// Stubs are zones that are forwarded to resolvers of their own instead of those of the node. It is a flag's value,
// which can be repeated: ZONE=ADDRESS[:PORT][,ADDRESS[:PORT]...].
type Stubs map[string][]netip.AddrPort // by zone, in lower case and with a dot at its end

var _ pflag.Value = (*Stubs)(nil)

// Flags adds the flag.
func (s *Stubs) Flags(f *pflag.FlagSet) {
	f.Var(s, "cluster-dns-stub",
		"Resolvers of the built-in DNS server for the names of one zone, as ZONE=ADDRESS[:PORT][,...]; they are asked in "+
			"this order. Can be repeated. Other names are resolved by the resolvers of the node.")
}

// Type implements pflag.Value.
func (s *Stubs) Type() string { return "zone=addresses" }

// String implements pflag.Value.
func (s *Stubs) String() string { return "" }

// Set implements pflag.Value.
func (s *Stubs) Set(text string) error {
	zone, list, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("%q must be ZONE=ADDRESS[:PORT][,...]", text)
	}
	zone = strings.ToLower(strings.TrimSuffix(zone, "."))
	if problems := validation.IsDNS1123Subdomain(zone); len(problems) > 0 {
		return fmt.Errorf("zone %q: %s", zone, strings.Join(problems, "; "))
	}
	zone = dns.Fqdn(zone)
	if _, twice := (*s)[zone]; twice {
		return fmt.Errorf("zone %q is repeated", zone)
	}
	if len(*s) == maxStubs {
		return fmt.Errorf("more than %d zones", maxStubs)
	}
	var at []netip.AddrPort
	for one := range strings.SplitSeq(list, ",") {
		ip, err := netip.ParseAddrPort(one)
		if err != nil {
			alone, err := netip.ParseAddr(one)
			if err != nil {
				return fmt.Errorf("zone %q: %q is neither an IP address nor ADDRESS:PORT", zone, one)
			}
			ip = netip.AddrPortFrom(alone, 53)
		}
		at = append(at, ip)
	}
	if *s == nil {
		*s = Stubs{}
	}
	(*s)[zone] = at
	return nil
}

// of returns the resolvers of the longest zone that contains a name; nil: there is none.
func (s Stubs) of(name string) []netip.AddrPort {
	if len(s) == 0 {
		return nil
	}
	name = strings.ToLower(name)
	for at, end := 0, false; !end; at, end = dns.NextLabel(name, at) {
		if found := s[name[at:]]; found != nil {
			return found
		}
	}
	return nil
}
