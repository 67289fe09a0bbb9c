package service

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/follow"
)

var web = follow.Key{Namespace: "default", Name: "web"}

// service returns a NodePort Service with port 80 over TCP and UDP.
func service(change ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.5", ClusterIPs: []string{"10.96.0.5", "fd96::5"},
			ExternalIPs: []string{"192.0.2.7"},
			Ports: []corev1.ServicePort{{Name: "tcp", Port: 80, NodePort: 30080}, {Name: "udp", Port: 80, NodePort: 30080,
				Protocol: corev1.ProtocolUDP}},
		},
	}
	for _, f := range change {
		f(svc)
	}
	return svc
}

// endpointSlices returns EndpointSlices with port 8080 of the addresses; the endpoints in local are on this node.
func endpointSlices(local []string, remote ...string) []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	add := func(ip string, node *string) {
		family := discoveryv1.AddressTypeIPv4
		if strings.Contains(ip, ":") {
			family = discoveryv1.AddressTypeIPv6
		}
		all = append(all, &discoveryv1.EndpointSlice{
			AddressType: family,
			Ports: []discoveryv1.EndpointPort{
				{Name: new("tcp"), Port: new(int32(8080))}, {Name: new("udp"), Port: new(int32(8080)),
					Protocol: new(corev1.ProtocolUDP)},
			},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip}, NodeName: node}},
		})
	}
	for _, ip := range local {
		add(ip, new("here"))
	}
	for _, ip := range remote {
		add(ip, nil)
	}
	return all
}

func (w *world) set(svc *corev1.Service, eps []*discoveryv1.EndpointSlice) {
	w.t.Helper()
	w.proxy.Set(web, svc, eps)
	w.sync()
}

func (w *world) sync() {
	w.t.Helper()
	if err := w.proxy.Sync(); err != nil {
		w.t.Error(err)
	}
}

// TestClientsReachEndpoints connects from all kinds of clients to every address of a Service.
func TestClientsReachEndpoints(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		a, b := w.pod().serve("a", 8080), w.pod()
		w.set(service(), endpointSlices([]string{a.ip, a.ip6}))
		if got, err := w.self().ask("tcp", "[::1]:30080"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("from the node to its node port at ::1: %q, %v, want a refused connection", got, err)
		}
		for from, client := range map[string]*node{"another pod": b, "the endpoint itself": a, "the node": w.self(),
			"another machine": w.outside} {
			addresses := []string{"10.96.0.5:80", "[fd96::5]:80", "192.0.2.7:80", "203.0.113.1:30080", "[2001:db8::1]:30080"}
			if from == "the node" {
				addresses = append(addresses, "127.0.0.1:30080", "10.88.0.1:30080")
			}
			for _, address := range addresses {
				for _, network := range []string{"tcp", "udp"} {
					got, err := client.ask(network, address)
					if err != nil || !strings.HasPrefix(got, "a ") {
						t.Errorf("from %s to %s %s: answer %q, error %v", from, network, address, got, err)
					}
					if from == "another machine" && !strings.Contains(got, w.outside.ip) && !strings.Contains(got, w.outside.ip6) {
						t.Errorf("from %s to %s %s: answer %q without the client address", from, network, address, got)
					}
				}
			}
		}
	})
}

// TestInstancesShareAMachine runs two instances with Services at the same address. Pods reach the Services of their own
// instance.
func TestInstancesShareAMachine(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		ours := w.pod().serve("ours", 8080)
		another, err := w.AddNetwork("br-other", netip.MustParsePrefix("10.89.0.0/24"), netip.MustParsePrefix("fd89::/64"))
		if err != nil {
			t.Error(err)
			return
		}
		theirs := w.as(another)
		theirs.serve("theirs", 8080)
		other := New(Config{Table: tableName + "-other", Node: Node{Name: "here"}, Bridge: "br-other", Bridges: "br",
			Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, Log: zap.NewNop()})
		clusterIP := func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeClusterIP }
		for _, step := range []struct{ ours, theirs bool }{{true, true}, {true, false}, {false, true}} {
			endpoints := func(p *node, has bool) []*discoveryv1.EndpointSlice {
				if !has {
					return nil
				}
				return endpointSlices([]string{p.ip, p.ip6})
			}
			w.set(service(clusterIP), endpoints(ours, step.ours))
			other.Set(web, service(clusterIP), endpoints(theirs, step.theirs))
			if err := other.Sync(); err != nil {
				t.Error(err)
			}
			for _, client := range []struct {
				*node
				name string
				has  bool
			}{{ours, "ours", step.ours}, {theirs, "theirs", step.theirs}} {
				for _, address := range []string{"10.96.0.5:80", "[fd96::5]:80"} {
					got, err := client.ask("tcp", address)
					if client.has && !strings.HasPrefix(got, client.name+" ") || !client.has && !errors.Is(err, syscall.ECONNREFUSED) {
						t.Errorf("%+v: from %s to %s: answer %q, error %v", step, client.name, address, got, err)
					}
				}
			}
		}
	})
}

// TestEveryEndpointIsPicked checks that connections spread over all endpoints, and over the others after a removal.
func TestEveryEndpointIsPicked(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		names := map[string]*node{"a": w.pod().serve("a", 8080), "b": w.pod().serve("b", 8080), "c": w.pod().serve("c", 8080)}
		picked := func() map[string]int {
			seen := map[string]int{}
			for range 60 {
				got, err := w.self().ask("tcp", "10.96.0.5:80")
				if err != nil {
					t.Error(err)
				}
				name, _, _ := strings.Cut(got, " ")
				seen[name]++
			}
			return seen
		}
		var ips []string
		for _, p := range names {
			ips = append(ips, p.ip)
		}
		w.set(service(), endpointSlices(ips))
		if seen := picked(); len(seen) != 3 {
			t.Errorf("connections by endpoint: %v", seen)
		}
		w.set(service(), endpointSlices([]string{names["b"].ip, names["c"].ip}))
		if seen := picked(); len(seen) != 2 || seen["a"] > 0 {
			t.Errorf("connections by endpoint after the removal of a: %v", seen)
		}
	})
}

// TestServicesWithoutEndpointsAreRefused checks that connections to a Service without endpoints fail at once, and
// succeed as soon as it has one.
func TestServicesWithoutEndpointsAreRefused(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		a := w.pod().serve("a", 8080)
		clients := map[string]*node{"a pod": a, "the node": w.self(), "another machine": w.outside}
		addresses := []string{"10.96.0.5:80", "[fd96::5]:80", "203.0.113.1:30080", "192.0.2.7:80"}
		for range 2 {
			w.set(service(), nil)
			for from, client := range clients {
				for _, address := range addresses {
					for _, network := range []string{"tcp", "udp"} {
						if network == "udp" && (address != addresses[0] || client == w.outside) {
							continue // the kernel limits the rate of ICMP errors per client
						}
						if _, err := client.ask(network, address); !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EPERM) {
							t.Errorf("from %s to %s %s: %v, want a refused connection", from, network, address, err)
						}
					}
				}
			}
			w.set(service(), endpointSlices([]string{a.ip, a.ip6}))
			for from, client := range clients {
				for _, address := range addresses {
					if got, err := client.ask("udp", address); err != nil {
						t.Errorf("from %s to %s: answer %q, error %v", from, address, got, err)
					}
				}
			}
		}
		w.set(nil, nil)
		if _, err := w.self().ask("tcp", "203.0.113.1:30080"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connection to the node port of a deleted Service: %v", err)
		}
	})
}

// ruleset returns the output of nft, which must be able to parse every rule.
func (w *world) ruleset() string {
	w.t.Helper()
	nft, err := exec.LookPath("nft")
	if err != nil {
		w.t.Skip("needs nft")
	}
	out, err := exec.Command(nft, "list", "ruleset").CombinedOutput()
	if err != nil {
		w.t.Errorf("nft list ruleset: %v: %s", err, out)
	}
	return string(out)
}

// TestRulesAreTheSameAfterARestart checks that a new process keeps the rules of the old one, and restores changed
// rules.
func TestRulesAreTheSameAfterARestart(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		if out, err := exec.Command("nft",
			"add table ip foreign; add chain ip foreign x; add rule ip foreign x drop").CombinedOutput(); err != nil {
			t.Skipf("nft: %v %s", err, out)
		}
		foreign := w.ruleset()
		other := service(func(s *corev1.Service) {
			s.Spec.ClusterIPs, s.Spec.ExternalIPs, s.Spec.Ports[0].NodePort = []string{"10.96.0.6"}, nil, 0
		})
		load := func() {
			w.proxy.Set(web, service(), endpointSlices([]string{"10.88.0.2", "10.88.0.3", "fd88::2"}, "198.51.100.4"))
			w.proxy.Set(follow.Key{Name: "other"}, other, nil)
			w.sync()
		}
		load()
		before := w.ruleset()
		w.proxy = w.newProxy()
		for _, f := range []func(){
			func() {},
			func() { exec.Command("nft", "flush map ip "+tableName+" endpoints").Run() },
			func() {
				exec.Command("nft", "add element ip "+tableName+" services { 10.96.9.9 . tcp . 80 : goto pick-4 }").Run()
			},
			func() { exec.Command("nft", "delete table ip "+tableName).Run() },
		} {
			f()
			w.proxy = w.newProxy()
			load()
			if after := w.ruleset(); sorted(after) != sorted(before) {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		}
		for range 2 {
			if err := Remove(tableName); err != nil {
				t.Error(err)
			}
		}
		if left := w.ruleset(); left != foreign {
			t.Errorf("rules left after Remove:\n%s", left)
		}
	})
}

// sorted sorts the lines of a ruleset, because the kernel lists the elements of a recreated set in another order.
func sorted(text string) string {
	lines := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "elements = {"))
		lines[strings.TrimSpace(strings.TrimRight(line, " ,}"))] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(lines)), "\n")
}

// TestTableIsRestored checks that the proxy restores its table after another program has removed it.
func TestTableIsRestored(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		a := w.pod().serve("a", 8080)
		w.set(service(), endpointSlices([]string{a.ip}))
		if err := Remove(tableName); err != nil {
			t.Error(err)
		}
		w.proxy.Set(web, service(), nil)
		if err := w.proxy.Sync(); err == nil {
			t.Error("a change of a removed table succeeded")
		}
		w.set(service(), endpointSlices([]string{a.ip}))
		if got, err := w.self().ask("tcp", "10.96.0.5:80"); err != nil {
			t.Errorf("connection after the restore: answer %q, error %v", got, err)
		}
	})
}

// TestClientsKeepTheirEndpoint checks that clients of a Service with session affinity reach the same endpoint until its
// removal, even after a restart of the process and the addition of endpoints.
func TestClientsKeepTheirEndpoint(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		sticky := func(seconds int32) *corev1.Service {
			return service(func(s *corev1.Service) {
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
			})
		}
		pods := map[string]*node{}
		for _, name := range []string{"a", "b", "c", "d"} {
			pods[name] = w.pod().serve(name, 8080)
		}
		ips := func(names ...string) (all []string) {
			for _, name := range names {
				all = append(all, pods[name].ip)
			}
			return all
		}
		client := w.pod()
		for _, address := range []string{"10.96.0.5:80", "203.0.113.1:30080"} {
			ask := func() string {
				got, err := client.ask("tcp", address)
				if err != nil {
					t.Errorf("%s: %v", address, err)
				}
				name, _, _ := strings.Cut(got, " ")
				return name
			}
			stays := func(name string) {
				t.Helper()
				for range 20 {
					if got := ask(); got != name {
						t.Errorf("%s: the answer is from %q, want %q as before", address, got, name)
						return
					}
				}
			}
			w.set(sticky(10800), endpointSlices(ips("a", "b", "c")))
			first := ask()
			stays(first)
			w.set(sticky(10800), endpointSlices(ips("a", "b", "c", "d")))
			stays(first)
			w.ruleset()
			w.proxy = w.newProxy()
			w.set(sticky(10800), endpointSlices(ips("a", "b", "c", "d")))
			stays(first)
			others := slices.DeleteFunc([]string{"a", "b", "c", "d"}, func(name string) bool { return name == first })
			w.set(sticky(10800), endpointSlices(ips(others...)))
			second := ask()
			stays(second)
			w.set(sticky(10800), endpointSlices(ips("a", "b", "c", "d")))
			stays(second)
			w.set(service(), nil)
		}
		if rules := w.ruleset(); strings.Contains(rules, "assign-") || strings.Contains(rules, "sticky-") {
			t.Errorf("chains left:\n%s", rules)
		}
	})
}

// TestUDPFlowsMove checks that a client with one socket reaches the endpoint that replaces another.
func TestUDPFlowsMove(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		a, b := w.pod().serve("a", 8080), w.pod().serve("b", 8080)
		for _, address := range []string{"10.96.0.5:80", "203.0.113.1:30080"} {
			w.set(service(), endpointSlices([]string{a.ip}))
			c, err := net.Dial("udp", address)
			if err != nil {
				t.Error(err)
				return
			}
			c.SetDeadline(time.Now().Add(time.Minute))
			for _, step := range []struct {
				to   string
				want string
			}{{a.ip, "a "}, {b.ip, "b "}, {a.ip, "a "}} {
				w.set(service(), endpointSlices([]string{step.to}))
				if got, err := exchange(c); err != nil || !strings.HasPrefix(got, step.want) {
					t.Errorf("%s: %q, %v, want %q", address, got, err, step.want)
				}
			}
			c.Close()
		}
	})
}
