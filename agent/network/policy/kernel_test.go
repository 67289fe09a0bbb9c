package policy

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"monopod/agent/network/networktest"
	"monopod/agent/network/nft"
	"monopod/agent/network/service"
)

const tableName = "monopod-test-policy"

var families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// cluster is a machine whose pods have namespaces and labels.
type cluster struct {
	*networktest.Machine
	*Enforcer
}

func newCluster(t testing.TB, cfg networktest.Config, f func(c *cluster)) {
	t.Helper()
	networktest.Run(t, cfg, func(m *networktest.Machine) {
		c := &cluster{m, New(Config{Table: tableName, Families: families})}
		defer c.Close()
		for _, p := range m.Pods {
			m.Serve(p, 80, 81)
		}
		m.Serve(m.Host, 80)
		m.Serve(m.Outside, 80)
		f(c)
	})
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func (c *cluster) space(name string, labels ...string) {
	c.SetNamespace(name, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelMap(labels)}})
}

func labelMap(labels []string) map[string]string {
	out := map[string]string{}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		out[k] = v
	}
	return out
}

// pod passes pod i of the machine to the Enforcer.
func (c *cluster) pod(i int, namespace string, labels ...string) {
	c.SetPod(key(namespace, c.Pods[i].Name), Of(podObject(c.Pods[i], namespace, labels...)))
}

func podObject(n *networktest.Node, namespace string, labels ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: n.Name, Labels: labelMap(labels)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			{Name: "web", ContainerPort: 80}, {Name: "dns", ContainerPort: 81, Protocol: corev1.ProtocolUDP},
		}}}},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: n.IP.String()}, {IP: n.IP6.String()}}},
	}
}

// policyOf returns a NetworkPolicy with the spec and the defaults of the API server.
func policyOf(t testing.TB, namespace, name, spec string) *networkingv1.NetworkPolicy {
	t.Helper()
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Error(spec, err)
	}
	return p
}

func (c *cluster) apply(t testing.TB, namespace, name, spec string) {
	t.Helper()
	if spec == "" {
		c.SetPolicy(key(namespace, name), nil)
	} else {
		c.SetPolicy(key(namespace, name), policyOf(t, namespace, name, spec))
	}
	c.sync(t)
}

func (c *cluster) sync(t testing.TB) {
	t.Helper()
	if err := c.Sync(); err != nil {
		t.Error(err)
	}
}

// probes returns connections of a client to a port of a server, over both protocols and both families.
func probes(from, to *networktest.Node, port uint16, want bool) []networktest.Probe {
	var out []networktest.Probe
	for _, ip := range []netip.Addr{to.IP, to.IP6} {
		for _, udp := range []bool{false, true} {
			out = append(out, networktest.Probe{From: from, UDP: udp, To: netip.AddrPortFrom(ip, port), Want: want})
		}
	}
	return out
}

// TestPolicies checks connections between the pods a (app=a) and b (app=b) of the namespace one and c (app=a) and d of
// the namespace two (team=x), with policies in the namespace one.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, br := range []bool{false, true} {
		t.Run(fmt.Sprintf("br_netfilter %v", br), func(t *testing.T) {
			t.Parallel()
			newCluster(t, networktest.Config{Pods: 4, BrNetfilter: br}, func(c *cluster) { testPolicies(t, c) })
		})
	}
}

func testPolicies(t *testing.T, c *cluster) {
	c.space("one")
	c.space("two", "team=x")
	c.pod(0, "one", "app=a")
	c.pod(1, "one", "app=b")
	c.pod(2, "two", "app=a")
	c.pod(3, "two")
	names := map[string]*networktest.Node{"a": c.Pods[0], "b": c.Pods[1], "c": c.Pods[2], "d": c.Pods[3], "node": c.Host,
		"out": c.Outside}
	ends := "a b c d node out"
	for name, test := range map[string]struct {
		policies []string
		to       string // servers of the connections
		allowed  string // client>server, or client>server:port, or with a protocol
	}{
		"no policy": {nil, "a b", "a>a b>a c>a d>a node>a out>a a>b b>b c>b d>b node>b out>b"},
		"deny ingress of a": {[]string{"{podSelector: {matchLabels: {app: a}}}"}, "a b",
			"a>a node>a a>b b>b c>b d>b node>b out>b"},
		"deny ingress": {[]string{"{podSelector: {}, policyTypes: [Ingress]}"}, "a b c",
			"a>a node>a b>b node>b a>c b>c c>c d>c node>c out>c"},
		"deny egress": {[]string{"{podSelector: {}, policyTypes: [Egress]}"}, "a c",
			"a>a c>a d>a node>a out>a c>c d>c node>c out>c"},
		"allow ingress": {[]string{"{podSelector: {}, ingress: [{}]}"}, "a", "a>a b>a c>a d>a node>a out>a"},
		"own namespace": {[]string{"{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}"}, "a", "a>a b>a node>a"},
		"all namespaces": {[]string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}"}, "a",
			"a>a b>a c>a d>a node>a"},
		"selected namespace": {[]string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: " +
			"{team: x}}}]}]}"}, "a b", "a>a c>a d>a node>a b>b c>b d>b node>b"},
		"pods of a namespace": {[]string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: " +
			"{team: x}}, podSelector: {matchLabels: {app: a}}}]}]}"}, "a", "a>a c>a node>a"},
		"two peers": {[]string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: " +
			"{team: x}}}, {podSelector: {matchLabels: {app: b}}}]}]}"}, "a", "a>a b>a c>a d>a node>a"},
		"ipBlock": {[]string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24}}, " +
			"{ipBlock: {cidr: '2001:db8::/32'}}]}]}"}, "a", "a>a node>a out>a"},
		"ipBlock with except": {[]string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, " +
			"except: [203.0.113.0/30, 10.88.0.3/32]}}, {ipBlock: {cidr: '::/0', except: ['2001:db8::2/128', 'fd88::3/128']}}]}]}"}, "a", "a>a c>a d>a node>a"},
		"port": {[]string{"{podSelector: {}, ingress: [{ports: [{port: 80}]}]}"}, "a",
			"a>a b>a:80/tcp c>a:80/tcp d>a:80/tcp node>a out>a:80/tcp"},
		"ports": {[]string{"{podSelector: {}, ingress: [{ports: [{port: 80, protocol: UDP}, {port: 1, " +
			"endPort: 80}]}]}"}, "a", "a>a b>a:80 c>a:80 d>a:80 node>a out>a:80"},
		"protocol": {[]string{"{podSelector: {}, ingress: [{ports: [{protocol: UDP}]}]}"}, "a",
			"a>a b>a:80/udp c>a:80/udp d>a:80/udp b>a:81/udp c>a:81/udp d>a:81/udp node>a out>a:80/udp out>a:81/udp"},
		"named ports": {[]string{"{podSelector: {}, ingress: [{from: [{podSelector: {}}], " +
			"ports: [{port: web}, {port: dns, protocol: UDP}, {port: dns}]}]}"}, "a", "a>a b>a:80/tcp b>a:81/udp node>a"},
		"egress to a named port": {[]string{"{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], " +
			"egress: [{to: [{namespaceSelector: {}, podSelector: {matchLabels: {app: a}}}], ports: [{port: web}]}]}"}, "b c d",
			"b>b c>b d>b node>b out>b a>c:80/tcp b>c c>c d>c node>c out>c b>d c>d d>d node>d out>d"},
		"egress to an ipBlock": {[]string{"{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], " +
			"egress: [{to: [{ipBlock: {cidr: 203.0.113.2/32}}, {ipBlock: {cidr: '2001:db8::2/128'}}]}]}"}, "b out node",
			"b>b c>b d>b node>b out>b a>out b>out c>out d>out node>out a>node b>node c>node d>node"},
		"several policies": {[]string{"{podSelector: {}}",
			"{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: b}}}]}]}",
			"{podSelector: {matchLabels: {app: a}}, ingress: [{from: [{ipBlock: {cidr: 10.88.0.4/32}}, " +
				"{ipBlock: {cidr: 'fd88::4/128'}}]}]}"}, "a b", "a>a b>a c>a node>a b>b node>b"},
		"egress and ingress": {[]string{"{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{}]}",
			"{podSelector: {matchLabels: {app: b}}, ingress: [{from: [{podSelector: {matchLabels: {app: c}}}]}]}"}, "b d",
			"b>b node>b a>d b>d c>d d>d node>d out>d"},
		"matchExpressions": {[]string{"{podSelector: {matchExpressions: [{key: app, operator: In, values: [a, " +
			"x]}]}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: Exists}]}}]}]}"}, "a",
			"a>a b>a node>a"},
	} {
		for i, spec := range test.policies {
			c.SetPolicy(key("one", fmt.Sprint(i)), policyOf(t, "one", fmt.Sprint(i), spec))
		}
		c.sync(t)
		var all []networktest.Probe
		for _, to := range strings.Fields(test.to) {
			for _, from := range strings.Fields(ends) {
				if to == "node" && (from == "node" || from == "out") || to == "out" && from == "out" {
					continue // the node answers these from another of its addresses
				}
				ports := []uint16{80, 81}
				if to == "node" || to == "out" {
					ports = ports[:1]
				}
				for _, port := range ports {
					for _, p := range probes(names[from], names[to], port, false) {
						network, path := "tcp", from+">"+to
						if p.UDP {
							network = "udp"
						}
						for _, allowed := range strings.Fields(test.allowed) {
							p.Want = p.Want || allowed == path || allowed == fmt.Sprintf("%s:%d", path, port) ||
								allowed == fmt.Sprintf("%s:%d/%s", path, port, network)
						}
						all = append(all, p)
					}
				}
			}
		}
		c.Check(name, all...)
		for i := range test.policies {
			c.SetPolicy(key("one", fmt.Sprint(i)), nil)
		}
	}
	c.sync(t)
	if got := ruleset(t); strings.Contains(got, "hook") || strings.Contains(got, prefixPods) {
		t.Errorf("rules left without policies:\n%s", got)
	}
}

// ruleset returns the tables of this test.
func ruleset(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	for _, family := range []string{"ip", "ip6"} {
		out, err := exec.Command("nft", "-a", "list", "table", family, tableName).CombinedOutput()
		if err != nil {
			t.Errorf("nft: %v\n%s", err, out)
		}
		all.Write(out)
	}
	return all.String()
}

// TestPoliciesApplyToEndpointsOfServices checks that a client reaches a Service, by cluster IP and node port, if
// policies allow it to reach the endpoint, and that the endpoint sees the client's address.
func TestPoliciesApplyToEndpointsOfServices(t *testing.T) {
	t.Parallel()
	for _, br := range []bool{false, true} {
		t.Run(fmt.Sprintf("br_netfilter %v", br), func(t *testing.T) {
			t.Parallel()
			newCluster(t, networktest.Config{Pods: 3, BrNetfilter: br}, func(c *cluster) { testServices(t, c) })
		})
	}
}

func testServices(t *testing.T, c *cluster) {
	proxy := newProxy()
	defer proxy.Close()
	setService(t, proxy, 0, 80, c.Pods[0])
	c.space("one")
	for i := range c.Pods {
		c.pod(i, "one", fmt.Sprintf("app=%d", i))
	}
	for _, step := range []struct {
		name, spec string
		allowed    []*networktest.Node
	}{
		{"no policy", "", []*networktest.Node{c.Pods[0], c.Pods[1], c.Pods[2], c.Outside, c.Host}},
		{"ingress from a pod", "{podSelector: {matchLabels: {app: '0'}}, ingress: [{from: [{podSelector: {matchLabels: {app: '1'}}}]}]}",
			[]*networktest.Node{c.Pods[0], c.Pods[1], c.Host}},
		{"from ipBlock", "{podSelector: {matchLabels: {app: '0'}}, ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24}}, " +
			"{ipBlock: {cidr: '2001:db8::/64'}}], ports: [{port: 80}, {port: 80, protocol: UDP}]}]}",
			[]*networktest.Node{c.Pods[0], c.Host, c.Outside}},
		{"egress of two pods", "{podSelector: {matchExpressions: [{key: app, operator: In, values: ['1', '2']}]}, " +
			"policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: '2'}}}]}]}", []*networktest.Node{c.Pods[0],
			c.Host, c.Outside}},
	} {
		c.apply(t, "one", "p", step.spec)
		var all []networktest.Probe
		for _, from := range append([]*networktest.Node{c.Host, c.Outside}, c.Pods...) {
			want := false
			for _, a := range step.allowed {
				want = want || a == from
			}
			for _, to := range serviceAddresses(0) {
				if from == c.Outside && to.Port() < 30000 {
					continue // the outside has no route to cluster IPs
				}
				for _, udp := range []bool{false, true} {
					all = append(all, networktest.Probe{From: from, UDP: udp, To: to, Want: want})
				}
			}
		}
		for i, answer := range c.Try(all...) {
			p := all[i]
			if answer.OK != p.Want {
				t.Errorf("%s: %s: answered %v", step.name, p, answer.OK)
			}
			if own := p.From.IP.String() + p.From.IP6.String(); p.UDP && answer.OK && p.From != c.Pods[0] && p.From != c.Host &&
				!strings.Contains(own, answer.From) {
				t.Errorf("%s: %s: the endpoint sees the client as %s", step.name, p, answer.From)
			}
		}
	}
}

func newProxy() *service.Proxy {
	return service.New(service.Config{Table: "monopod-test-services", Node: service.Node{Name: "here"},
		Bridge: networktest.Bridge, Families: families})
}

// serviceAddresses returns the addresses of Service i: its cluster IPs and its node port.
func serviceAddresses(i int) []netip.AddrPort {
	var out []netip.AddrPort
	for _, text := range []string{fmt.Sprintf("10.96.0.%d:80", 10+i), fmt.Sprintf("[fd96::%x]:80", 10+i),
		fmt.Sprintf("203.0.113.1:%d", 30080+i), fmt.Sprintf("[2001:db8::1]:%d", 30080+i)} {
		out = append(out, netip.MustParseAddrPort(text))
	}
	return out
}

// setService sets the endpoints of Service i to a port of the pods.
func setService(t testing.TB, proxy *service.Proxy, i int, port int32, pods ...*networktest.Node) {
	t.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: fmt.Sprintf("10.96.0.%d", 10+i),
			ClusterIPs: []string{fmt.Sprintf("10.96.0.%d", 10+i), fmt.Sprintf("fd96::%x", 10+i)},
			Ports: []corev1.ServicePort{{Name: "tcp", Port: 80, NodePort: 30080 + int32(i)},
				{Name: "udp", Port: 80, NodePort: 30080 + int32(i), Protocol: corev1.ProtocolUDP}},
		},
	}
	var slices []*discoveryv1.EndpointSlice
	for _, family := range families {
		slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressType(family), Ports: []discoveryv1.EndpointPort{
			{Name: new("tcp"), Port: &port}, {Name: new("udp"), Port: &port, Protocol: new(corev1.ProtocolUDP)},
		}}
		for _, p := range pods {
			ip := p.IP
			if family == corev1.IPv6Protocol {
				ip = p.IP6
			}
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip.String()},
				NodeName: new("here")})
		}
		slices = append(slices, slice)
	}
	proxy.Set(key("default", svc.Name), svc, slices)
	if err := proxy.Sync(); err != nil {
		t.Error(err)
	}
}

// TestARestartChangesNothing checks that a second Enforcer leaves the tables of the first and a foreign table
// unchanged, and that it writes changes since the end of the first.
func TestARestartChangesNothing(t *testing.T) {
	t.Parallel()
	newCluster(t, networktest.Config{Pods: 3}, func(c *cluster) {
		foreign := "table ip foreign {\n\tset pods-x {\n\t\ttype ipv4_addr\n\t\telements = { 10.88.0.2 }\n\t}\n}\n"
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(foreign)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		know := func(e *Enforcer) {
			again := &cluster{c.Machine, e}
			again.space("one")
			for i := range c.Pods {
				again.pod(i, "one", fmt.Sprintf("app=%d", i))
			}
			again.apply(t, "one", "p", "{podSelector: {matchLabels: {app: '0'}}, "+
				"ingress: [{from: [{podSelector: {matchLabels: {app: '1'}}}, {ipBlock: {cidr: 203.0.113.0/24, "+
				"except: [203.0.113.4/30]}}], ports: [{port: web}, {port: 1, endPort: 79}, {protocol: SCTP}]}, {}]}")
			again.apply(t, "one", "q", "{podSelector: {}, policyTypes: [Egress, Ingress], "+
				"egress: [{to: [{namespaceSelector: {}}, {ipBlock: {cidr: '0.0.0.0/0'}}, {ipBlock: {cidr: '::/0'}}]}]}")
		}
		know(c.Enforcer)
		before := ruleset(t)
		if !strings.Contains(before, "sctp . 0-65535") || !strings.Contains(before, "10.88.0.3") {
			t.Errorf("the rules lack expected elements:\n%s", before)
		}
		second := New(Config{Table: tableName, Families: families})
		defer second.Close()
		know2 := second
		again := &cluster{c.Machine, know2}
		again.space("one")
		for i := range c.Pods {
			again.pod(i, "one", fmt.Sprintf("app=%d", i))
		}
		second.SetPolicy(key("one", "q"), policyOf(t, "one", "q", "{podSelector: {}, policyTypes: [Egress, Ingress], "+
			"egress: [{to: [{namespaceSelector: {}}, {ipBlock: {cidr: '0.0.0.0/0'}}, {ipBlock: {cidr: '::/0'}}]}]}"))
		second.SetPolicy(key("one", "p"), policyOf(t, "one", "p", "{podSelector: {matchLabels: {app: '0'}}, "+
			"ingress: [{from: [{podSelector: {matchLabels: {app: '1'}}}, {ipBlock: {cidr: 203.0.113.0/24, "+
			"except: [203.0.113.4/30]}}], ports: [{port: web}, {port: 1, endPort: 79}, {protocol: SCTP}]}, {}]}"))
		again.sync(t)
		if after := ruleset(t); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		third := New(Config{Table: tableName, Families: families}) // without policies
		(&cluster{c.Machine, third}).sync(t)
		if after := ruleset(t); strings.Contains(after, "10.88") || strings.Contains(after, "hook") {
			t.Errorf("tables left without policies:\n%s", after)
		}
		out, err := exec.Command("nft", "list", "table", "ip", "foreign").CombinedOutput()
		if err != nil || string(out) != foreign {
			t.Errorf("the foreign table: %v\n%s", err, out)
		}
		for _, l := range c.tables {
			err := l.Do(func(conn *nftables.Conn) error {
				nft.Remove(conn, l.layout.table)
				return conn.Flush()
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}
