package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/agent/network/networktest"
)

// topologies is the number of random topologies, unless MONOPOD_TOPOLOGIES is set.
const topologies = 12

// topology is a random state of a cluster. Its method allows is the model of the policies.
type topology struct {
	rand     *rand.Rand
	spaces   map[string]map[string]string
	pods     []*corev1.Pod // one for each pod of the machine
	nodes    []*networktest.Node
	policies []*networkingv1.NetworkPolicy
	services []endpoint
}

// endpoint is the only endpoint of a Service.
type endpoint struct {
	pod  int
	port uint16
}

var spaceNames = []string{"red", "green", "blue"}

func newTopology(r *rand.Rand, nodes []*networktest.Node) *topology {
	w := &topology{rand: r, spaces: map[string]map[string]string{}, nodes: nodes}
	for _, name := range spaceNames {
		w.spaces[name] = w.labels()
	}
	for _, n := range nodes {
		pod := podObject(n, pick(r, spaceNames...))
		pod.Labels = w.labels()
		c := &pod.Spec.Containers[0]
		c.Ports = nil
		for _, name := range []string{"web", "dns"} {
			if r.IntN(3) > 0 {
				c.Ports = append(c.Ports,
					corev1.ContainerPort{Name: name, ContainerPort: pick(r, int32(80), 81), Protocol: pick(r, "", corev1.ProtocolUDP)})
			}
		}
		if r.IntN(8) == 0 {
			pod.Spec.HostNetwork = true // policies ignore pods on the host network
		}
		w.pods = append(w.pods, pod)
	}
	for i := range r.IntN(7) {
		w.policies = append(w.policies, w.policy(fmt.Sprint(i)))
	}
	for range 2 {
		w.services = append(w.services, endpoint{r.IntN(len(nodes)), pick(r, uint16(80), 81)})
	}
	return w
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (w *topology) labels() map[string]string {
	out := map[string]string{}
	for _, k := range []string{"a", "b"} {
		if w.rand.IntN(2) == 0 {
			out[k] = pick(w.rand, "1", "2")
		}
	}
	return out
}

func (w *topology) selector() metav1.LabelSelector {
	switch w.rand.IntN(4) {
	case 0:
		return metav1.LabelSelector{}
	case 1:
		return metav1.LabelSelector{MatchLabels: w.labels()}
	}
	e := metav1.LabelSelectorRequirement{Key: pick(w.rand, "a", "b"),
		Operator: pick(w.rand, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists,
			metav1.LabelSelectorOpDoesNotExist)}
	if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
		e.Values = []string{pick(w.rand, "1", "2")}
	}
	return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{e}}
}

func (w *topology) policy(name string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: pick(w.rand, spaceNames...), Name: name}}
	p.Spec.PodSelector = w.selector()
	p.Spec.PolicyTypes = pick(w.rand, nil, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		[]networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		[]networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress})
	for range w.rand.IntN(3) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: w.peers(), Ports: w.ports()})
	}
	for range w.rand.IntN(3) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: w.peers(), Ports: w.ports()})
	}
	return p
}

func (w *topology) peers() (out []networkingv1.NetworkPolicyPeer) {
	for range w.rand.IntN(4) {
		pods, spaces := w.selector(), w.selector()
		out = append(out, pick(w.rand,
			networkingv1.NetworkPolicyPeer{PodSelector: &pods}, networkingv1.NetworkPolicyPeer{NamespaceSelector: &spaces},
			networkingv1.NetworkPolicyPeer{PodSelector: &pods, NamespaceSelector: &spaces},
			networkingv1.NetworkPolicyPeer{IPBlock: pick(w.rand,
				&networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.88.0.4/30", "203.0.113.0/24"}},
				&networkingv1.IPBlock{CIDR: "::/0", Except: []string{"fd88::4/126"}},
				&networkingv1.IPBlock{CIDR: "10.88.0.0/30"},
				&networkingv1.IPBlock{CIDR: "fd88::/125", Except: []string{"fd88::3/128", "fd88::2/127"}},
				&networkingv1.IPBlock{CIDR: "203.0.113.2/32"}, &networkingv1.IPBlock{CIDR: "2001:db8::/32"},
				&networkingv1.IPBlock{CIDR: "10.0.0.0/8"})}))
	}
	return out
}

func (w *topology) ports() (out []networkingv1.NetworkPolicyPort) {
	for range w.rand.IntN(4) {
		p := networkingv1.NetworkPolicyPort{Protocol: pick(w.rand, nil, new(corev1.ProtocolTCP), new(corev1.ProtocolUDP),
			new(corev1.ProtocolSCTP))}
		switch w.rand.IntN(5) {
		case 0:
		case 1:
			p.Port = new(intstr.FromString(pick(w.rand, "web", "dns")))
		case 2:
			p.Port, p.EndPort = new(intstr.FromInt32(pick(w.rand, int32(1), 80, 81))), new(pick(w.rand, int32(81), 500))
		default:
			p.Port = new(intstr.FromInt32(pick(w.rand, int32(80), 81, 82)))
		}
		out = append(out, p)
	}
	return out
}

// connection is a connection between pods; -1 is the outside.
type connection struct {
	from, to int
	ip       [2]netip.Addr // of client and server
	protocol corev1.Protocol
	port     uint16
}

func (w *topology) allows(c connection) bool {
	return c.from >= 0 && c.from == c.to || w.leaves(c) && w.enters(c)
}

func (w *topology) leaves(c connection) bool {
	isolated, allowed := false, false
	for _, p := range w.policies {
		types := p.Spec.PolicyTypes
		if !w.selected(p, c.from) || len(types) == 0 && len(p.Spec.Egress) == 0 ||
			len(types) > 0 && !slices.Contains(types, networkingv1.PolicyTypeEgress) {
			continue
		}
		isolated = true
		for _, r := range p.Spec.Egress {
			allowed = allowed || w.matches(p, r.To, r.Ports, c, c.to, c.ip[1])
		}
	}
	return !isolated || allowed
}

func (w *topology) enters(c connection) bool {
	isolated, allowed := false, false
	for _, p := range w.policies {
		types := p.Spec.PolicyTypes
		if !w.selected(p, c.to) || len(types) > 0 && !slices.Contains(types, networkingv1.PolicyTypeIngress) {
			continue
		}
		isolated = true
		for _, r := range p.Spec.Ingress {
			allowed = allowed || w.matches(p, r.From, r.Ports, c, c.from, c.ip[0])
		}
	}
	return !isolated || allowed
}

func (w *topology) selected(p *networkingv1.NetworkPolicy, pod int) bool {
	return pod >= 0 && !w.pods[pod].Spec.HostNetwork && w.pods[pod].Namespace == p.Namespace &&
		has(&p.Spec.PodSelector, w.pods[pod].Labels)
}

func has(s *metav1.LabelSelector, set map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(set))
}

func (w *topology) matches(p *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort, c connection, other int, ip netip.Addr) bool {
	peer := len(peers) == 0
	for _, one := range peers {
		peer = peer || w.isPeer(p, one, other, ip)
	}
	port := len(ports) == 0
	for _, one := range ports {
		port = port || w.isPort(one, c)
	}
	return peer && port
}

func (w *topology) isPeer(p *networkingv1.NetworkPolicy, peer networkingv1.NetworkPolicyPeer, other int,
	ip netip.Addr) bool {
	if b := peer.IPBlock; b != nil {
		in := netip.MustParsePrefix(b.CIDR).Contains(ip)
		for _, except := range b.Except {
			in = in && !netip.MustParsePrefix(except).Contains(ip)
		}
		return in
	}
	if other < 0 || w.pods[other].Spec.HostNetwork {
		return false
	}
	pod := w.pods[other]
	if peer.NamespaceSelector == nil && pod.Namespace != p.Namespace || peer.NamespaceSelector != nil &&
		!has(peer.NamespaceSelector, w.spaces[pod.Namespace]) {
		return false
	}
	return peer.PodSelector == nil || has(peer.PodSelector, pod.Labels)
}

func (w *topology) isPort(p networkingv1.NetworkPolicyPort, c connection) bool {
	if protocol := p.Protocol; protocol != nil && *protocol != c.protocol ||
		protocol == nil && c.protocol != corev1.ProtocolTCP {
		return false
	}
	switch {
	case p.Port == nil:
		return true
	case p.Port.Type == intstr.Int && p.EndPort == nil:
		return int32(c.port) == p.Port.IntVal
	case p.Port.Type == intstr.Int:
		return int32(c.port) >= p.Port.IntVal && int32(c.port) <= *p.EndPort
	}
	if c.to < 0 || w.pods[c.to].Spec.HostNetwork {
		return false
	}
	return slices.ContainsFunc(w.pods[c.to].Spec.Containers[0].Ports, func(named corev1.ContainerPort) bool {
		protocol := named.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		return named.Name == p.Port.StrVal && protocol == c.protocol && uint16(named.ContainerPort) == c.port
	})
}

// probes returns connections from all clients to every pod, to the outside and to Services.
func (w *topology) probes(m *networktest.Machine) (out []networktest.Probe) {
	for from := -1; from <= len(w.nodes); from++ { // the last one is the node itself
		client := m.Outside
		switch {
		case from == len(w.nodes):
			client = m.Host
		case from >= 0:
			client = w.nodes[from]
		}
		add := func(to int, server *networktest.Node, port uint16, service int) {
			udp, family := w.rand.IntN(2) == 0, w.rand.IntN(2)
			c := connection{from: from, to: to, port: port, protocol: corev1.ProtocolTCP,
				ip: [2]netip.Addr{client.IP, server.IP}}
			if family == 1 {
				c.ip = [2]netip.Addr{client.IP6, server.IP6}
			}
			if udp {
				c.protocol = corev1.ProtocolUDP
			}
			p := networktest.Probe{From: client, UDP: udp, To: netip.AddrPortFrom(c.ip[1], port), Want: client == m.Host ||
				w.allows(c)}
			if service >= 0 {
				at := family
				if from < 0 || w.rand.IntN(2) == 0 {
					at += 2 // the node port
				}
				p.To = serviceAddresses(service)[at]
			}
			out = append(out, p)
		}
		for to, server := range w.nodes {
			add(to, server, 80, -1)
			add(to, server, 81, -1)
		}
		for i, e := range w.services {
			add(e.pod, w.nodes[e.pod], e.port, i)
		}
		if client != m.Outside && client != m.Host {
			add(-1, m.Outside, 80, -1)
		}
	}
	return out
}

// apply passes the topology to the Enforcer in random order; old is the previous topology.
func (w *topology) apply(e *Enforcer, old *topology) {
	var steps []func()
	keep := map[string]bool{}
	for _, p := range w.policies {
		keep[p.Namespace+"/"+p.Name] = true
		steps = append(steps, func() { e.SetPolicy(key(p.Namespace, p.Name), p) })
	}
	for i, p := range w.pods {
		if old != nil && old.pods[i].Namespace != p.Namespace {
			steps = append(steps,
				func() { e.SetPod(key(old.pods[i].Namespace, p.Name), nil); e.SetPod(key(p.Namespace, p.Name), Of(p)) })
		} else {
			steps = append(steps, func() { e.SetPod(key(p.Namespace, p.Name), Of(p)) })
		}
	}
	for name, set := range w.spaces {
		steps = append(steps, func() {
			e.SetNamespace(name, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}})
		})
	}
	if old != nil {
		for _, p := range old.policies {
			if !keep[p.Namespace+"/"+p.Name] {
				steps = append(steps, func() { e.SetPolicy(key(p.Namespace, p.Name), nil) })
			}
		}
	}
	w.rand.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for _, step := range steps {
		step()
	}
}

// TestRandomTopologies applies random topologies one after the other, and compares the model with real connections
// among pods, Services and the outside. A new Enforcer with only the last topology must not change the tables.
func TestRandomTopologies(t *testing.T) {
	t.Parallel()
	n := number(t, "MONOPOD_TOPOLOGIES", topologies)
	for _, br := range []bool{false, true} {
		t.Run(fmt.Sprintf("br_netfilter %v", br), func(t *testing.T) {
			t.Parallel()
			newCluster(t, networktest.Config{Pods: 6, BrNetfilter: br}, func(c *cluster) {
				proxy := newProxy()
				defer proxy.Close()
				var old *topology
				connections, allowed := 0, 0
				for seed := range uint64(n+1) / 2 {
					r := rand.New(rand.NewPCG(seed, map[bool]uint64{true: 1}[br]))
					w := newTopology(r, c.Pods)
					w.apply(c.Enforcer, old)
					c.sync(t)
					for i, e := range w.services {
						setService(t, proxy, i, int32(e.port), w.nodes[e.pod])
					}
					probes := w.probes(c.Machine)
					for _, p := range probes {
						connections++
						if p.Want {
							allowed++
						}
					}
					if !c.Check(fmt.Sprintf("topology %d", seed), probes...) {
						t.Logf("pods and policies:\n%s\n%s", text(w), ruleset(t))
						return
					}
					before := ruleset(t)
					fresh := New(Config{Table: tableName, Families: families})
					w.apply(fresh, nil)
					err := fresh.Sync()
					fresh.Close()
					if err != nil || ruleset(t) != before {
						t.Errorf("topology %d: a new Enforcer changes the tables, error %v\nbefore:\n%s\nafter:\n%s", seed,
							err, before, ruleset(t))
						return
					}
					old = w
				}
				t.Logf("%d connections, %d of them allowed", connections, allowed)
			})
		})
	}
}

// number returns the number in an environment variable; n if it is not set.
func number(t *testing.T, variable string, n int) int {
	if text := os.Getenv(variable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Error(err)
		}
	}
	return n
}

func text(w *topology) string {
	out := fmt.Sprintln(w.spaces)
	for i, p := range w.pods {
		out += fmt.Sprintln(w.nodes[i].Name, w.nodes[i].IP, p.Namespace, p.Labels, p.Spec.Containers[0].Ports,
			p.Spec.HostNetwork)
	}
	for _, p := range w.policies {
		out += fmt.Sprintf("%s/%s %s\n", p.Namespace, p.Name, p.Spec.String())
	}
	return out
}
