package serviceloadbalancer

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// balancer returns a Service of type LoadBalancer with the port 80; ips are the addresses in its status.
func balancer(name string, ips string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.Unix(int64(name[0]), 0)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	for ip := range strings.FieldsSeq(ips) {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func dual(policy corev1.IPFamilyPolicy) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, &policy
	}
}

func asks(ip string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerIP = ip }
}
func port(number int32) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports[0].Port = number }
}
func protocol(p corev1.Protocol) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports[0].Protocol = p }
}

func TestChoose(t *testing.T) {
	t.Parallel()
	const nodes = "192.0.2.1 192.0.2.2 2001:db8::1"
	for name, c := range map[string]struct {
		s       *corev1.Service
		others  []*corev1.Service
		nodes   string
		pool    string
		want    string
		problem string
	}{
		"the nodes":                 {s: balancer("b", ""), nodes: nodes, want: "192.0.2.1 192.0.2.2"},
		"of both families":          {s: balancer("b", "", dual("RequireDualStack")), nodes: nodes, want: nodes},
		"no node":                   {s: balancer("b", ""), problem: "no node has an address"},
		"loadBalancerIP of a node":  {s: balancer("b", "", asks("192.0.2.2")), nodes: nodes, want: "192.0.2.2"},
		"loadBalancerIP of no node": {s: balancer("b", "", asks("192.0.2.9")), nodes: nodes, want: "192.0.2.1 192.0.2.2"},
		"a port in use": {s: balancer("b", ""), others: []*corev1.Service{balancer("c", "192.0.2.1")},
			nodes: nodes, problem: "port 80/TCP of the node's address belongs to the Service default/c"},
		"a port that a newer Service also has": {s: balancer("b", "192.0.2.1"),
			others: []*corev1.Service{balancer("c", "192.0.2.1")}, nodes: "192.0.2.1", want: "192.0.2.1"},
		"a port that an older Service also has": {s: balancer("b", "192.0.2.1"),
			others: []*corev1.Service{balancer("a", "192.0.2.1")}, nodes: "192.0.2.1",
			problem: "belongs to the Service default/a"},
		"another port": {s: balancer("b", "", port(81)),
			others: []*corev1.Service{balancer("a", "192.0.2.1")}, nodes: "192.0.2.1", want: "192.0.2.1"},
		"another protocol": {s: balancer("b", "", protocol(corev1.ProtocolUDP)),
			others: []*corev1.Service{balancer("a", "192.0.2.1")}, nodes: "192.0.2.1", want: "192.0.2.1"},
		"a pool": {s: balancer("b", ""), nodes: nodes, pool: "198.51.100.0/30", want: "198.51.100.0"},
		"a pool that has the node's address": {s: balancer("b", ""), nodes: "198.51.100.0", pool: "198.51.100.0/30",
			want: "198.51.100.1"},
		"the free address of a pool": {s: balancer("b", ""),
			others: []*corev1.Service{balancer("c", "198.51.100.0")}, pool: "198.51.100.0/30", want: "198.51.100.1"},
		"the second range": {s: balancer("b", ""),
			others: []*corev1.Service{balancer("c", "198.51.100.0")}, pool: "198.51.100.0/32,203.0.113.0/32",
			want: "203.0.113.0"},
		"a full pool": {s: balancer("b", ""),
			others: []*corev1.Service{balancer("c", "198.51.100.0")}, pool: "198.51.100.0/32",
			problem: "no IPv4 address of --load-balancer-pool is free"},
		"its address of the pool":     {s: balancer("b", "198.51.100.3"), pool: "198.51.100.0/30", want: "198.51.100.3"},
		"its address of another pool": {s: balancer("b", "203.0.113.3"), pool: "198.51.100.0/30", want: "198.51.100.0"},
		"an address that a newer Service also has": {s: balancer("b", "198.51.100.3"),
			others: []*corev1.Service{balancer("c", "198.51.100.3")}, pool: "198.51.100.0/30", want: "198.51.100.3"},
		"an address that an older Service also has": {s: balancer("b", "198.51.100.3"),
			others: []*corev1.Service{balancer("a", "198.51.100.3")}, pool: "198.51.100.0/30", want: "198.51.100.0"},
		"loadBalancerIP of the pool": {s: balancer("b", "198.51.100.1", asks("198.51.100.2")),
			pool: "198.51.100.0/30", want: "198.51.100.2"},
		"loadBalancerIP outside of the pool": {s: balancer("b", "", asks("192.0.2.1")), pool: "198.51.100.0/30",
			problem: "loadBalancerIP 192.0.2.1 is not in --load-balancer-pool"},
		"loadBalancerIP in use": {s: balancer("b", "", asks("198.51.100.2")),
			others: []*corev1.Service{balancer("c", "198.51.100.2")}, pool: "198.51.100.0/30",
			problem: "belongs to the Service default/c"},
		"both families of a pool": {s: balancer("b", "", dual("RequireDualStack")),
			pool: "198.51.100.0/30,2001:db8:1::/64", want: "198.51.100.0 2001:db8:1::"},
		"a pool that lacks a required family": {s: balancer("b", "", dual("RequireDualStack")), pool: "198.51.100.0/30",
			want: "198.51.100.0", problem: "no IPv6 address"},
		"a pool that lacks a family": {s: balancer("b", "", dual("PreferDualStack")), pool: "198.51.100.0/30",
			want: "198.51.100.0"},
	} {
		pool, err := ParsePool(c.pool)
		if err != nil {
			t.Fatal(err)
		}
		var all []netip.Addr
		for ip := range strings.FieldsSeq(c.nodes) {
			all = append(all, netip.MustParseAddr(ip))
		}
		got, problem := choose(c.s, c.others, all, pool)
		var texts []string
		for _, ip := range got {
			texts = append(texts, ip.String())
		}
		if strings.Join(texts, " ") != c.want || c.problem == "" && problem != "" || !strings.Contains(problem, c.problem) {
			t.Errorf("%s: %v %q, want %s %q", name, got, problem, c.want, c.problem)
		}
	}
}

func TestParsePool(t *testing.T) {
	t.Parallel()
	for text, fails := range map[string]bool{
		"": false, "192.0.2.0/28, 2001:db8::/64": false, "192.0.2.0": true, "192.0.2.1/28": true, "127.0.0.0/8": true,
		"192.0.2.0/28,192.0.2.0/29": true, "x": true,
	} {
		if _, err := ParsePool(text); fails != (err != nil) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func start(t *testing.T, pool string) *apitest.API {
	t.Helper()
	api := apitest.New(t)
	ranges, err := ParsePool(pool)
	if err != nil {
		t.Fatal(err)
	}
	api.Events.Watch()
	api.Run(New(api.Deps(), &api.Events, ranges))
	return api
}

// has checks the addresses of a Service, and the Events since the last check.
func has(t *testing.T, api *apitest.API, name, want string, events ...string) {
	t.Helper()
	apitest.Settle(time.Second)
	s, _ := apitest.Get[*corev1.Service](api, "default", name)
	var got []string
	for _, in := range s.Status.LoadBalancer.Ingress {
		got = append(got, in.IP)
		if in.IPMode == nil || *in.IPMode != corev1.LoadBalancerIPModeVIP {
			t.Errorf("ipMode %v", in.IPMode)
		}
	}
	count := map[string]int{}
	for _, e := range events {
		count[e]++
	}
	if diff := cmp.Diff(count, api.Events.Count()); strings.Join(got, " ") != want || diff != "" {
		t.Errorf("%s has %v, want %s; events %s", name, got, want, diff)
	}
}

// TestNodes tests that Services follow the addresses of the node, and their own type and class.
func TestNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t, "")
		api.Create(balancer("a", ""))
		has(t, api, "a", "", "SyncLoadBalancerFailed")
		node := apitest.Node("one")
		api.Create(node)
		at := func(ip string) {
			apitest.Change(api, node, "status", func(n *corev1.Node) {
				n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "one"}, {Type: corev1.NodeInternalIP,
					Address: ip}}
			})
		}
		at("192.0.2.1")
		has(t, api, "a", "192.0.2.1", "EnsuringLoadBalancer", "EnsuredLoadBalancer")
		at("192.0.2.2")
		has(t, api, "a", "192.0.2.2", "UpdatedLoadBalancer")

		api.Create(balancer("b", ""),
			balancer("c", "", func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("example.com/other") }))
		has(t, api, "c", "", "SyncLoadBalancerFailed") // the Event is about b
		has(t, api, "b", "")
		a, _ := apitest.Get[*corev1.Service](api, "default", "a")
		apitest.Change(api, a, "", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
		has(t, api, "a", "", "DeletingLoadBalancer", "DeletedLoadBalancer", "EnsuringLoadBalancer", "EnsuredLoadBalancer")
		has(t, api, "b", "192.0.2.2")
	})
}

// TestPool tests two Services and a pool of one address.
func TestPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t, "198.51.100.7/32")
		api.Create(balancer("a", ""))
		has(t, api, "a", "198.51.100.7", "EnsuringLoadBalancer", "EnsuredLoadBalancer")
		api.Create(balancer("b", ""))
		has(t, api, "b", "", "SyncLoadBalancerFailed")
		a, _ := apitest.Get[*corev1.Service](api, "default", "a")
		apitest.Change(api, a, "", func(s *corev1.Service) { s.Finalizers = []string{finalizer, "example.com/other"} })
		has(t, api, "a", "198.51.100.7")
		api.Delete(a, "")
		has(t, api, "b", "198.51.100.7", "DeletingLoadBalancer", "DeletedLoadBalancer", "EnsuringLoadBalancer",
			"EnsuredLoadBalancer")
		if a, ok := apitest.Get[*corev1.Service](api, "default", "a"); !ok || len(a.Finalizers) != 1 {
			t.Errorf("want a to keep the other finalizer: exists %v, finalizers %v", ok, a.Finalizers)
		}
	})
}
