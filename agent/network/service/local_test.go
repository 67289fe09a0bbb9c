package service

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod/testdata/harness"
)

// TestLocalTrafficPolicy checks externalTrafficPolicy Local with endpoints on this node and on another one. Clients
// outside of the cluster reach only the endpoints of this node; pods and the node itself reach all, as with kube-proxy.
func TestLocalTrafficPolicy(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		here, client := w.pod().serve("here", 8080), w.pod()
		another, err := w.AddNetwork("there", netip.MustParsePrefix("10.89.0.0/24"), netip.MustParsePrefix("fd89::/64"))
		if err != nil {
			t.Error(err)
			return
		}
		there := w.as(another).serve("there", 8080)
		local := func(affinity corev1.ServiceAffinity) *corev1.Service {
			return service(func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
				s.Spec.SessionAffinity = affinity
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.8"}, {IP: "2001:db8:1::8"}}
			})
		}
		both := endpointSlices([]string{here.ip, here.ip6}, there.ip, there.ip6)
		remote := endpointSlices(nil, there.ip, there.ip6)
		addresses := []string{"203.0.113.1:30080", "[2001:db8::1]:30080", "192.0.2.7:80", "192.0.2.8:80",
			"[2001:db8:1::8]:80"}
		// answers returns the names of the endpoints that answer.
		answers := func(from *node, address string, times int) []string {
			var names []string
			for range times {
				got, err := from.ask("tcp", address)
				if err != nil {
					t.Errorf("%s to %s: %v", from.Name, address, err)
				}
				name, _, _ := strings.Cut(got, " ")
				names = append(names, name)
			}
			slices.Sort(names)
			return slices.Compact(names)
		}
		clients := map[*node]string{client: "here there", w.self(): "here there", w.outside: "here"}
		check := func(what string, eps []*discoveryv1.EndpointSlice, affinity corev1.ServiceAffinity, times int,
			is func(got, want string) bool) {
			t.Helper()
			w.set(local(affinity), eps)
			for from, want := range clients {
				for _, address := range addresses {
					if got := strings.Join(answers(from, address, times), " "); !is(got, want) {
						t.Errorf("%s: from %s to %s: answers from %q, want %q", what, from.Name, address, got, want)
					}
				}
			}
		}
		check("both nodes", both, corev1.ServiceAffinityNone, 30, func(got, want string) bool { return got == want })
		check("with session affinity", both, corev1.ServiceAffinityClientIP, 5, func(got, want string) bool {
			return got != "" && !strings.Contains(got, " ") && strings.Contains(want, got)
		})
		rules := w.ruleset()
		w.proxy = w.newProxy()
		w.set(local(corev1.ServiceAffinityClientIP), both)
		age := regexp.MustCompile(` expires \w+`) // of the client affinity
		if after := w.ruleset(); sorted(age.ReplaceAllString(after, "")) != sorted(age.ReplaceAllString(rules, "")) ||
			!strings.Contains(rules, "inside-sticky-2") {
			t.Errorf("after a restart:\n%s\nbefore:\n%s", after, rules)
		}
		w.set(local(corev1.ServiceAffinityNone), remote)
		for _, address := range addresses {
			for _, from := range []*node{client, w.self()} {
				if got, err := from.ask("udp", address); err != nil || !strings.HasPrefix(got, "there ") {
					t.Errorf("endpoints only on the other node: from %s to %s: answer %q, error %v", from.Name, address, got, err)
				}
			}
		}
		if got, err := w.outside.askFor(time.Second, "udp", addresses[0]); err == nil {
			t.Errorf("endpoints only on the other node: a client outside got the answer %q", got)
		}
		w.set(nil, nil)
		if left := w.ruleset(); strings.Contains(left, insidePrefix) || strings.Contains(left, "30080") {
			t.Errorf("rules left after the deletion of the Service:\n%s", left)
		}
	})
}

// TestHostNetworkPods uses a pod on the host network as client and as endpoint, also of itself.
func TestHostNetworkPods(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		host, pod := w.self().serve("host", 8080), w.pod()
		w.set(service(), endpointSlices([]string{"203.0.113.1", "2001:db8::1"}))
		for from, addresses := range map[*node][]string{
			host: {"10.96.0.5:80", "[fd96::5]:80", "192.0.2.7:80", "203.0.113.1:30080", "[2001:db8::1]:30080",
				"127.0.0.1:30080", "10.88.0.1:30080"},
			pod:       {"10.96.0.5:80", "[fd96::5]:80", "192.0.2.7:80", "203.0.113.1:30080", "[2001:db8::1]:30080"},
			w.outside: {"192.0.2.7:80", "203.0.113.1:30080", "[2001:db8::1]:30080"},
		} {
			for _, address := range addresses { // over TCP, because a UDP server chooses the source address of its answers
				if got, err := from.ask("tcp", address); err != nil || !strings.HasPrefix(got, "host ") {
					t.Errorf("from %s to %s: answer %q, error %v", from.Name, address, got, err)
				}
			}
		}
	})
}

// TestAddressOfTheMachineChanges checks that a node port is reachable at a new address of the machine without a change
// of the rules, and no longer at a removed address.
func TestAddressOfTheMachineChanges(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		a := w.pod().serve("a", 8080)
		w.set(service(), endpointSlices([]string{a.ip, a.ip6}))
		link, err := netlink.LinkByName("uplink")
		if err != nil {
			t.Fatal(err)
		}
		for old, now := range map[string]string{"203.0.113.1/24": "203.0.113.9/24", "2001:db8::1/64": "2001:db8::9/64"} {
			to, err := netlink.ParseAddr(now)
			if err != nil {
				t.Fatal(err)
			}
			to.Flags = unix.IFA_F_NODAD
			from, err := netlink.ParseAddr(old)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(netlink.AddrDel(link, from), netlink.AddrAdd(link, to)); err != nil {
				t.Fatal(err)
			}
			for from, client := range map[string]*node{"a pod": a, "the node": w.self(), "another machine": w.outside} {
				var got string
				var err error
				// The kernel adds the route of an IPv6 address a moment after the address.
				if !harness.Eventually(harness.Enough, func() bool {
					got, err = client.ask("tcp", netip.AddrPortFrom(netip.MustParsePrefix(now).Addr(), 30080).String())
					return err == nil && strings.HasPrefix(got, "a ")
				}) {
					t.Errorf("from %s to the new address %s: answer %q, error %v", from, now, got, err)
				}
			}
			if got, err := w.outside.ask("tcp",
				netip.AddrPortFrom(netip.MustParsePrefix(old).Addr(), 30080).String()); err == nil {
				t.Errorf("the removed address %s still answers: %q", old, got)
			}
		}
	})
}

// TestAffinityExpires checks that a client may reach another endpoint after its affinity has expired.
func TestAffinityExpires(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		var ips []string
		for i := range 8 {
			ips = append(ips, w.pod().serve(fmt.Sprint(i), 8080).ip)
		}
		w.set(service(func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(
				int32(1))}}
		}), endpointSlices(ips))
		four := w.proxy.tables[0]
		remembered := func() (n int) {
			err := four.Do(func(conn *nftables.Conn) error {
				all, err := conn.GetSetElements(four.sets[setAffinity]) // without expired elements
				n = len(all)
				return err
			})
			if err != nil {
				t.Error(err)
			}
			return n
		}
		ask := func() string {
			got, err := w.self().ask("tcp", "10.96.0.5:80")
			if err != nil {
				t.Error(err)
			}
			return got
		}
		first := ask()
		for end := time.Now().Add(harness.Bound); ask() == first; {
			for remembered() > 0 {
				if time.Now().After(end) {
					t.Error("the affinity lasts longer than a second")
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			if t.Failed() || time.Now().After(end) {
				t.Errorf("after its affinity has expired, the client still always reaches %q", first)
				return
			}
		}
	})
}

// TestManyChains writes so many chains in one transaction that the answers of the kernel exceed the default buffer of a
// socket.
func TestManyChains(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		var ips []string
		for i := range 200 {
			ips = append(ips, fmt.Sprintf("10.88.1.%d", i+1))
		}
		w.set(service(func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }),
			endpointSlices(ips))
	})
}
