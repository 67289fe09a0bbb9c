package dns

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/follow"
)

// cluster is a Source.
type cluster map[follow.Key]entry

type entry struct {
	svc *corev1.Service
	eps []*discoveryv1.EndpointSlice
}

func (c cluster) Get(key follow.Key) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	return c[key].svc, c[key].eps
}

func key(name string) follow.Key { return follow.Key{Namespace: "default", Name: name} }

// services returns one Service of each kind.
func services() cluster {
	named := func(name string, spec corev1.ServiceSpec) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}
	}
	ports := []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP},
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}}
	endpoints := &discoveryv1.EndpointSlice{
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.88.0.2"}, Hostname: new("one")},
			{Addresses: []string{"10.88.0.3"}},
			{Addresses: []string{"10.88.0.4"}, Hostname: new("starting"),
				Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
		},
	}
	six := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv6, Ports: endpoints.Ports,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"fd88::2"}, Hostname: new("one")}, {Addresses: []string{"fd88::3"}},
		}}
	none := corev1.ClusterIPNone
	return cluster{
		key("web"): {svc: named("web",
			corev1.ServiceSpec{ClusterIP: "10.96.0.5", ClusterIPs: []string{"10.96.0.5", "fd96::5"}, Ports: ports})},
		key("set"): {named("set", corev1.ServiceSpec{ClusterIP: none, Ports: ports}),
			[]*discoveryv1.EndpointSlice{endpoints}},
		key("six"): {named("six", corev1.ServiceSpec{ClusterIP: none, Ports: ports}), []*discoveryv1.EndpointSlice{six}},
		key("early"): {named("early", corev1.ServiceSpec{ClusterIP: none, Ports: ports, PublishNotReadyAddresses: true}),
			[]*discoveryv1.EndpointSlice{endpoints}},
		key("empty"): {svc: named("empty", corev1.ServiceSpec{ClusterIP: none, Ports: ports})},
		key("outside"): {svc: named("outside", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName,
			ExternalName: "www.example.com"})},
		key("alias"): {svc: named("alias", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName,
			ExternalName: "web.default.svc.cluster.local"})},
		key("circular"): {svc: named("circular", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName,
			ExternalName: "circular.default.svc.cluster.local"})},
	}
}

func zone(c cluster) *Zone {
	z := NewZone("cluster.local", c, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"),
		netip.MustParsePrefix("10.88.0.0/24")})
	for key := range c {
		z.Changed(key)
	}
	return z
}

// said returns the sorted data of the records.
func said(records []dns.RR) string {
	var texts []string
	for _, r := range records {
		texts = append(texts, strings.Join(strings.Fields(strings.TrimPrefix(r.String(), r.Header().String())), " "))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

func TestNamesOfTheCluster(t *testing.T) {
	t.Parallel()
	z := zone(services())
	const missing = "NXDOMAIN"
	for _, c := range []struct {
		name string
		typ  uint16
		want string // records, missing, or empty for NODATA
	}{
		{"web.default.svc", dns.TypeA, "10.96.0.5"},
		{"WEB.Default.SVC", dns.TypeA, "10.96.0.5"},
		{"web.default.svc", dns.TypeAAAA, "fd96::5"},
		{"web.default.svc", dns.TypeTXT, ""},
		{"_http._tcp.web.default.svc", dns.TypeSRV, "0 100 80 web.default.svc.cluster.local."},
		{"_dns._udp.web.default.svc", dns.TypeSRV, "0 100 53 web.default.svc.cluster.local."},
		{"_dns._tcp.web.default.svc", dns.TypeSRV, missing},
		{"_tcp.web.default.svc", dns.TypeSRV, ""},
		{"one.web.default.svc", dns.TypeA, missing},
		{"absent.default.svc", dns.TypeA, missing},
		{"web.absent.svc", dns.TypeA, missing},
		{"default.svc", dns.TypeA, ""},
		{"absent.svc", dns.TypeA, missing},
		{"svc", dns.TypeA, ""},
		{"absent", dns.TypeA, missing},

		{"set.default.svc", dns.TypeA, "10.88.0.2, 10.88.0.3"},
		{"set.default.svc", dns.TypeAAAA, ""},
		{"one.set.default.svc", dns.TypeA, "10.88.0.2"},
		{"10-88-0-3.set.default.svc", dns.TypeA, "10.88.0.3"},
		{"starting.set.default.svc", dns.TypeA, missing},
		{"starting.early.default.svc", dns.TypeA, "10.88.0.4"},
		{"_http._tcp.set.default.svc", dns.TypeSRV,
			"0 100 8080 10-88-0-3.set.default.svc.cluster.local., 0 100 8080 one.set.default.svc.cluster.local."},
		{"empty.default.svc", dns.TypeA, missing},
		{"six.default.svc", dns.TypeAAAA, "fd88::2, fd88::3"},
		{"one.six.default.svc", dns.TypeAAAA, "fd88::2"},
		{"_http._tcp.six.default.svc", dns.TypeSRV,
			"0 100 8080 fd88--3.six.default.svc.cluster.local., 0 100 8080 one.six.default.svc.cluster.local."},

		{"outside.default.svc", dns.TypeA, "www.example.com."},
		{"10-88-0-9.default.pod", dns.TypeA, "10.88.0.9"},
		{"fd88--9.default.pod", dns.TypeAAAA, "fd88::9"},
		{"10-88-0-9.default.pod", dns.TypeAAAA, ""},
		{"nonsense.default.pod", dns.TypeA, missing},
		{"dns-version", dns.TypeTXT, `"1.1.0"`},
		{"", dns.TypeNS, "ns.dns.cluster.local."},
	} {
		name := strings.TrimPrefix(c.name+".cluster.local.", ".")
		a, ok := z.Answer(dns.Question{Name: name, Qtype: c.typ, Qclass: dns.ClassINET})
		got := said(a.Records)
		if a.Code == dns.RcodeNameError {
			got += missing
		}
		if !ok || got != c.want {
			t.Errorf("%s %s: %q, %t; want %q", name, dns.TypeToString[c.typ], got, ok, c.want)
		}
		for _, r := range a.Records {
			if r.Header().Name != name {
				t.Errorf("the answer for %s has the name %s", name, r.Header().Name)
			}
		}
	}
}

func TestForeignNamesAreNotAnswered(t *testing.T) {
	t.Parallel()
	z := zone(services())
	for _, name := range []string{"example.com.", "notcluster.local.", "local.", ".", "1.0.0.127.in-addr.arpa.", "arpa."} {
		if a, ok := z.Answer(dns.Question{Name: name, Qtype: dns.TypeA, Qclass: dns.ClassINET}); ok {
			t.Errorf("%s: %v", name, a)
		}
	}
}

func TestNamesOfAddresses(t *testing.T) {
	t.Parallel()
	c := services()
	z := zone(c)
	ask := func(ip string) string {
		name, err := dns.ReverseAddr(ip)
		if err != nil {
			t.Fatal(err)
		}
		a, ok := z.Answer(dns.Question{Name: name, Qtype: dns.TypePTR, Qclass: dns.ClassINET})
		if !ok {
			return "not ours"
		}
		if a.Code == dns.RcodeNameError {
			return "NXDOMAIN"
		}
		return said(a.Records)
	}
	expect := func(want map[string]string) {
		t.Helper()
		for ip, want := range want {
			if got := ask(ip); got != want {
				t.Errorf("%s: %q, want %q", ip, got, want)
			}
		}
	}
	expect(map[string]string{
		"10.96.0.5": "web.default.svc.cluster.local.", "fd96::5": "web.default.svc.cluster.local.", "10.96.0.6": "NXDOMAIN",
		"10.88.0.2": "one.early.default.svc.cluster.local., one.set.default.svc.cluster.local.", "10.88.0.3": "NXDOMAIN",
		"192.0.2.1": "not ours",
		"fd88::2":   "one.six.default.svc.cluster.local.", "fd88::3": "not ours",
	})
	for _, gone := range []string{"web", "early"} {
		delete(c, key(gone))
		z.Changed(key(gone))
	}
	expect(map[string]string{"10.96.0.5": "NXDOMAIN", "fd96::5": "not ours",
		"10.88.0.2": "one.set.default.svc.cluster.local."})
	clear(c)
	for _, gone := range []string{"set", "six", "empty", "outside", "alias", "circular"} {
		z.Changed(key(gone))
	}
	if len(z.names)+len(z.addresses)+len(z.namespaces) > 0 {
		t.Errorf("the zone still has records of deleted Services: %v, %v, %v", z.names, z.addresses, z.namespaces)
	}
}
