package dns

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod/apiserver/kit/follow"
)

const (
	// ttl is how many seconds clients may cache answers about the cluster, including that a name does not exist, because
	// clients may wait for new Services. It is the default of CoreDNS.
	ttl = 5
	// specification is the version of the names' specification.
	specification = "1.1.0"
)

// Source returns Services and their EndpointSlices. Objects are shared.
type Source interface {
	Get(key follow.Key) (*corev1.Service, []*discoveryv1.EndpointSlice)
}

// Zone answers for the domain of the cluster, and for the names of its addresses.
type Zone struct {
	domain string // with a final dot
	source Source
	local  []netip.Prefix // of Services and pods: only this zone has names for them

	mu         sync.RWMutex          // guards what follows
	names      map[netip.Addr][]name // almost always one, for which a map would be ten times as large
	addresses  map[follow.Key][]netip.Addr
	namespaces map[string]int // number of Services
}

// name is the name of a Service, or with a host that of one of its endpoints.
type name struct {
	service follow.Key
	host    string
}

// NewZone returns the zone of a domain. The zone also answers for all addresses within local.
func NewZone(domain string, source Source, local []netip.Prefix) *Zone {
	return &Zone{
		domain: strings.ToLower(dns.Fqdn(domain)), source: source, local: local,
		names: map[netip.Addr][]name{}, addresses: map[follow.Key][]netip.Addr{}, namespaces: map[string]int{},
	}
}

// Changed updates the names of the addresses of a Service.
func (z *Zone) Changed(key follow.Key) {
	svc, eps := z.source.Get(key)
	named := reverse(svc, eps)
	z.mu.Lock()
	defer z.mu.Unlock()
	old, had := z.addresses[key]
	for _, ip := range old {
		left := slices.DeleteFunc(z.names[ip], func(n name) bool { return n.service == key })
		if z.names[ip] = left; len(left) == 0 {
			delete(z.names, ip)
		}
	}
	if svc == nil {
		delete(z.addresses, key)
		if had {
			if z.namespaces[key.Namespace]--; z.namespaces[key.Namespace] == 0 {
				delete(z.namespaces, key.Namespace)
			}
		}
		return
	}
	if !had {
		z.namespaces[key.Namespace]++
	}
	ips := make([]netip.Addr, 0, len(named))
	for ip, host := range named {
		ips = append(ips, ip)
		z.names[ip] = append(z.names[ip], name{key, host})
	}
	z.addresses[key] = ips
}

// reverse returns the addresses of a Service and their hosts: its own, which have none, or those of the endpoints of a
// headless one.
func reverse(svc *corev1.Service, eps []*discoveryv1.EndpointSlice) map[netip.Addr]string {
	named := map[netip.Addr]string{}
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return named
	}
	if !headless(svc) {
		for _, ip := range clusterIPs(svc) {
			named[ip] = ""
		}
		return named
	}
	for _, e := range endpointsOf(svc, eps) {
		if e.named { // without a hostname the pod has no name of its own
			named[e.ip] = e.host
		}
	}
	return named
}

func (z *Zone) serviceName(key follow.Key) string {
	return key.Name + "." + key.Namespace + ".svc." + z.domain
}

// Answer is the answer of the zone to a query.
type Answer struct {
	Code          int // of the response
	Records, More []dns.RR
	// Alias is the name that a CNAME in Records leads to, for names outside of the zone.
	Alias string
}

// Answer returns the answer to a query; ok is false if the name is not in the zone.
func (z *Zone) Answer(q dns.Question) (a Answer, ok bool) {
	name := strings.ToLower(q.Name)
	if ip, ok := addressOf(name); ok {
		return z.ptr(q, ip)
	}
	rest, ok := strings.CutSuffix(name, z.domain)
	if !ok || rest != "" && !strings.HasSuffix(rest, ".") {
		return Answer{}, false
	}
	var labels []string
	if rest != "" {
		labels = strings.Split(strings.TrimSuffix(rest, "."), ".")
	}
	return z.below(q, labels), true
}

// nameError is the answer for names that do not exist. The zero Answer is for names without records of the type.
func nameError() Answer { return Answer{Code: dns.RcodeNameError} }

// below answers for a name in the zone; labels are those before the domain.
func (z *Zone) below(q dns.Question, labels []string) Answer {
	last := func(n int) string { return labels[len(labels)-n] }
	switch {
	case len(labels) == 0:
		switch q.Qtype {
		case dns.TypeSOA:
			return Answer{Records: []dns.RR{z.SOA()}}
		case dns.TypeNS:
			return Answer{Records: []dns.RR{&dns.NS{Hdr: header(q.Name, dns.TypeNS), Ns: "ns.dns." + z.domain}}}
		}
		return Answer{}
	case last(1) == "dns-version" && len(labels) == 1:
		return ofType(q, dns.TypeTXT, &dns.TXT{Hdr: header(q.Name, dns.TypeTXT), Txt: []string{specification}})
	case last(1) == "pod":
		return z.pod(q, labels[:len(labels)-1])
	case last(1) != "svc":
		return nameError()
	case len(labels) == 1:
		return Answer{}
	case len(labels) == 2:
		if !z.hasNamespace(labels[0]) {
			return nameError()
		}
		return Answer{}
	}
	return z.service(q, follow.Key{Namespace: last(2), Name: last(3)}, labels[:len(labels)-3])
}

func (z *Zone) hasNamespace(name string) bool {
	z.mu.RLock()
	defer z.mu.RUnlock()
	return z.namespaces[name] > 0
}

// SOA returns the SOA record, whose last field is the TTL of negative answers.
func (z *Zone) SOA() dns.RR {
	return &dns.SOA{
		Hdr: header(z.domain, dns.TypeSOA), Ns: "ns.dns." + z.domain, Mbox: "hostmaster." + z.domain,
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl,
	}
}

// pod answers for the name of an address: 10-88-0-2.NAMESPACE.pod.DOMAIN.
func (z *Zone) pod(q dns.Question, labels []string) Answer {
	switch len(labels) {
	case 0:
		return Answer{}
	case 1:
		if z.hasNamespace(labels[0]) {
			return Answer{}
		}
		return nameError()
	case 2:
		ip, err := netip.ParseAddr(strings.ReplaceAll(labels[0], "-", "."))
		if err != nil {
			ip, err = netip.ParseAddr(strings.ReplaceAll(labels[0], "-", ":"))
		}
		if err == nil {
			return addresses(q, []netip.Addr{ip})
		}
	}
	return nameError()
}

// service answers for a Service, or with labels below it for an endpoint or a port.
func (z *Zone) service(q dns.Question, key follow.Key, below []string) Answer {
	svc, eps := z.source.Get(key)
	if svc == nil {
		return nameError()
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		if len(below) > 0 {
			return nameError()
		}
		target := dns.Fqdn(svc.Spec.ExternalName)
		return Answer{Records: []dns.RR{&dns.CNAME{Hdr: header(q.Name, dns.TypeCNAME), Target: target}}, Alias: target}
	}
	s := namedService{name: z.serviceName(key), svc: svc, eps: eps}
	switch {
	case len(below) == 0:
		return s.self(q)
	case len(below) == 1 && !strings.HasPrefix(below[0], "_"):
		return s.endpoint(q, below[0])
	case len(below) == 1 && (below[0] == "_tcp" || below[0] == "_udp" || below[0] == "_sctp"):
		return Answer{}
	case len(below) == 2 && strings.HasPrefix(below[0], "_") && strings.HasPrefix(below[1], "_"):
		return s.port(q, below[0][1:], below[1][1:])
	}
	return nameError()
}

// ptr answers for the name of an address.
func (z *Zone) ptr(q dns.Question, ip netip.Addr) (Answer, bool) {
	z.mu.RLock()
	defer z.mu.RUnlock()
	var records []dns.RR
	for _, n := range z.names[ip] {
		full := z.serviceName(n.service)
		if n.host != "" {
			full = n.host + "." + full
		}
		records = append(records, &dns.PTR{Hdr: header(q.Name, dns.TypePTR), Ptr: full})
	}
	if len(records) > 0 {
		return ofType(q, dns.TypePTR, records...), true
	}
	return nameError(), slices.ContainsFunc(z.local, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// ofType returns the records if the query asks for their type.
func ofType(q dns.Question, typ uint16, records ...dns.RR) Answer {
	if q.Qtype != typ && q.Qtype != dns.TypeANY {
		return Answer{}
	}
	return Answer{Records: records}
}

func header(name string, typ uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: typ, Class: dns.ClassINET, Ttl: ttl}
}

// addresses are the records of the query's family, in an order that spreads clients.
func addresses(q dns.Question, ips []netip.Addr) Answer {
	var records []dns.RR
	for _, ip := range ips {
		if r := address(q.Name, ip); q.Qtype == r.Header().Rrtype || q.Qtype == dns.TypeANY {
			records = append(records, r)
		}
	}
	rand.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
	return Answer{Records: records}
}

func address(name string, ip netip.Addr) dns.RR {
	if ip.Is4() {
		return &dns.A{Hdr: header(name, dns.TypeA), A: net.IP(ip.AsSlice())}
	}
	return &dns.AAAA{Hdr: header(name, dns.TypeAAAA), AAAA: net.IP(ip.AsSlice())}
}

// addressOf parses the name of an address in in-addr.arpa or ip6.arpa.
func addressOf(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		labels := strings.Split(rest, ".")
		slices.Reverse(labels)
		ip, err := netip.ParseAddr(strings.Join(labels, "."))
		return ip, err == nil && ip.Is4()
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	nibbles := strings.Split(rest, ".")
	if !ok || len(nibbles) != 32 {
		return netip.Addr{}, false
	}
	slices.Reverse(nibbles)
	var b strings.Builder
	for i, n := range nibbles {
		if i > 0 && i%4 == 0 {
			b.WriteByte(':')
		}
		b.WriteString(n)
	}
	ip, err := netip.ParseAddr(b.String())
	return ip, err == nil
}
