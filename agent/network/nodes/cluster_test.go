package nodes

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/network/networktest"
	"monopod/agent/network/policy"
	"monopod/agent/network/service"
)

var families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// web is a NodePort Service of both families.
func web(change ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.5", ClusterIPs: []string{"10.96.0.5", "fd96::5"},
			Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}},
		},
	}
	for _, f := range change {
		f(svc)
	}
	return svc
}

// endpointsOn returns EndpointSlices with the pod of a computer.
func endpointsOn(c *computer) (out []*discoveryv1.EndpointSlice) {
	for i, ip := range c.podIPs {
		out = append(out, &discoveryv1.EndpointSlice{
			AddressType: discoveryv1.AddressType(families[i]),
			Ports:       []discoveryv1.EndpointPort{{Port: new(int32(80)), Name: new("")}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{ip.String()}, NodeName: &c.facts.name}},
		})
	}
	return out
}

// proxy serves the Service on a computer.
func proxy(t *testing.T, c *computer, svc *corev1.Service, eps []*discoveryv1.EndpointSlice) {
	t.Helper()
	n := c.kernel.Network
	in(t, c.ns, func() error {
		p := service.New(service.Config{
			Table: n.ServiceTable(), Node: service.Node{Name: c.facts.name}, Bridge: n.Bridge, Bridges: "mp-",
			Pods: n.Subnets, Families: families, Log: zap.NewNop(),
		})
		defer p.Close()
		p.Set(types.NamespacedName{Namespace: "default", Name: "web"}, svc, eps)
		return p.Sync()
	})
}

// Pods keep their addresses when a Service leads them to another node; clients outside of the cluster do not, because
// replies must return through the node that translated.
func TestServicesLeadToOtherNodes(t *testing.T) {
	t.Parallel()
	for _, routed := range []bool{false, true} {
		networktest.Isolated(t, func(lanNS netns.NsHandle) {
			all := lan(t, 2, routed)
			a, b := all[0], all[1]
			ways(t, all, Auto, true)
			for _, c := range all {
				proxy(t, c, web(), endpointsOn(b))
			}
			services := []netip.Addr{netip.MustParseAddr("10.96.0.5"), netip.MustParseAddr("fd96::5")}
			for i, ip := range services {
				if got := ask(t, a.pod, ip); got != a.podIPs[i].String() {
					t.Errorf("routed %v: from the pod, through %s: the endpoint sees %q", routed, ip, got)
				}
				if got := ask(t, a.ns, ip); !parse(got).IsValid() {
					t.Errorf("routed %v: from the host, through %s: %q", routed, ip, got)
				}
			}
			if !routed { // the client is a machine of the same subnet
				err := linkUp("lan", netip.MustParsePrefix("192.0.2.254/24"), netip.MustParsePrefix("2001:db8::ff/64"))
				if err != nil {
					t.Error(err)
				}
			}
			for i, ip := range a.facts.ips {
				got := askPort(t, lanNS, netip.AddrPortFrom(ip, 30080))
				if want := []string{ip.String(), a.kernel.Network.Gateways()[i].String()}; got != want[0] && got != want[1] {
					t.Errorf("routed %v: from outside, through a NodePort of the other node: %q, want one of %v", routed, got, want)
				}
			}
			local := func(svc *corev1.Service) { svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
			for _, c := range all {
				proxy(t, c, web(local), endpointsOn(b))
			}
			client := "192.0.2.254"
			if routed {
				client = "198.51.1.1"
			}
			if got := askPort(t, lanNS, netip.AddrPortFrom(b.facts.ips[0], 30080)); got != client {
				t.Errorf("routed %v: policy Local, through the node of the endpoint: %q, want %s", routed, got, client)
			}
			if got := ask(t, a.pod, services[0]); got != a.podIPs[0].String() {
				t.Errorf("routed %v: policy Local, from a pod of the other node: %q", routed, got)
			}
		})
	}
}

func parse(text string) netip.Addr {
	ip, _ := netip.ParseAddr(text)
	return ip
}

// A policy allows and refuses pods of other nodes by their labels.
func TestPoliciesApplyToPodsOfOtherNodes(t *testing.T) {
	t.Parallel()
	networktest.Isolated(t, func(netns.NsHandle) {
		all := lan(t, 2, true)
		a, b := all[0], all[1]
		ways(t, all, Auto, true)
		isolate := func(on, other *computer, allowed string) {
			in(t, on.ns, func() error {
				e := policy.New(policy.Config{Table: on.kernel.Network.PolicyTable(), Families: families, Log: zap.NewNop()})
				defer e.Close()
				e.SetNamespace("default", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
				set := func(c *computer, name string, remote bool) {
					e.SetPod(types.NamespacedName{Namespace: "default", Name: name},
						&policy.Pod{Labels: map[string]string{"app": name}, Addrs: c.podIPs, Remote: remote})
				}
				set(on, "server", false)
				set(other, "client", true)
				e.SetPolicy(types.NamespacedName{Namespace: "default", Name: "p"}, &networkingv1.NetworkPolicy{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
					Spec: networkingv1.NetworkPolicySpec{
						PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
						Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
							{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": allowed}}},
						}}},
					},
				})
				return e.Sync()
			})
		}
		isolate(b, a, "client")
		if got := ask(t, a.pod, b.podIPs[0]); got != a.podIPs[0].String() {
			t.Errorf("the allowed pod: %q", got)
		}
		isolate(b, a, "other")
		if got := ask(t, a.pod, b.podIPs[0]); !strings.Contains(got, "timeout") {
			t.Errorf("the refused pod: %q, want a timeout", got)
		}
		// The policy selects the pod of the other node, too, which only that node isolates.
		if got := ask(t, b.pod, a.podIPs[0]); got != b.podIPs[0].String() {
			t.Errorf("from the isolated pod, to a pod that another node isolates: %q", got)
		}
	})
}
