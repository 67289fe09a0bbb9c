package service

import (
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod/agent/network/nft"
	"monopod/testdata/harness"
)

// balancedService returns a Service with load balancer IPs and source ranges.
func balancedService(ips []string, ranges ...string) *corev1.Service {
	return service(func(s *corev1.Service) {
		s.Spec.Type, s.Spec.LoadBalancerSourceRanges, s.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, ranges, nil
		for _, ip := range ips {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	})
}

// TestLoadBalancers connects from another machine, a pod and the machine itself to a load balancer IP: to the port of a
// Service with several source ranges, and to a port without a Service.
func TestLoadBalancers(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		pool := []netip.Prefix{netip.MustParsePrefix("203.0.113.64/28"), netip.MustParsePrefix("2001:db8::40/124")}
		config := w.proxy.cfg
		config.Node.Pool = pool
		w.proxy = New(config)
		a := w.pod().serve("a", 8080)
		w.self().serve("the machine", 22)
		eps := endpointSlices([]string{a.ip, a.ip6})
		const four, six = "203.0.113.64", "2001:db8::40"
		clients := map[string]*node{"outside": w.outside, "pod": a, "machine": w.self()}
		check := func(what, address string, allowed ...string) {
			t.Helper()
			for from, client := range clients {
				want, limit := slices.Contains(allowed, from), time.Minute
				if !want {
					limit = time.Second // no answer is expected
				}
				got, err := client.askFor(limit, "udp", address)
				if want != (err == nil && strings.HasPrefix(got, "a ")) {
					t.Errorf("%s: from %s: answer %q, error %v; allowed %t", what, from, got, err, want)
				}
			}
		}
		w.set(balancedService([]string{four, six}), eps)
		check("no source ranges", four+":80", "outside", "pod", "machine")
		for from, client := range map[string]*node{"outside": w.outside, "pod": a} {
			if got, err := client.ask("tcp", four+":22"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s reaches a port of the machine at the load balancer IP: %q, %v", from, got, err)
			}
		}
		if got, err := w.outside.ask("tcp", "203.0.113.1:22"); err != nil {
			t.Errorf("connection to a port of the machine: %q, %v", got, err)
		}
		w.set(balancedService([]string{four, six}, "203.0.113.0/24", "203.0.113.2/32"), eps)
		// The range contains the machine itself, too.
		check("ranges that contain the other machine", four+":80", "outside", "machine")
		check("ranges of the other family only", "["+six+"]:80")
		w.set(balancedService([]string{four, six}, "10.88.0.0/16", "2001:db8::2/128"), eps)
		check("the pods' range", four+":80", "pod")

		// A new process changes no rules, and no state remains after the change of the Service.
		before := w.ruleset()
		w.proxy = New(config)
		w.set(balancedService([]string{four, six}, "10.88.0.0/16", "2001:db8::2/128"), eps)
		if after := w.ruleset(); before != after {
			t.Errorf("a new process changed the rules:\n%s\nbefore:\n%s", after, before)
		}
		w.set(service(), eps)
		link, err := netlink.LinkByName("br")
		if err != nil {
			t.Fatal(err)
		}
		have, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		for _, a := range have {
			if ip, _ := netip.AddrFromSlice(a.IP); slices.ContainsFunc(pool,
				func(p netip.Prefix) bool { return p.Contains(ip.Unmap()) }) {
				t.Errorf("the machine still has the address %s", ip)
			}
		}
		if text := w.ruleset(); err != nil || strings.Contains(text, four) {
			t.Errorf("error %v, rules left:\n%s", err, text)
		}
	})
}

func TestSources(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ranges     []string
		annotation string
		guarded    bool
		want       string
	}{
		"none": {},
		"nested": {ranges: []string{"10.1.0.0/16", " 10.0.0.0/8", "192.0.2.1/32", "10.0.0.0/8"},
			guarded: true, want: "10.0.0.0/8 192.0.2.1/32"},
		"other family": {ranges: []string{"fd00::/8"}, guarded: true},
		"annotation": {annotation: "192.0.2.0/24, 198.51.100.0/24", guarded: true,
			want: "192.0.2.0/24 198.51.100.0/24"},
		"field and annotation": {ranges: []string{"10.0.0.0/8"}, annotation: "192.0.2.0/24", guarded: true,
			want: "10.0.0.0/8"},
		"host bits set": {ranges: []string{"10.1.2.3/8"}, guarded: true, want: "10.0.0.0/8"},
	} {
		svc := balancedService(nil, c.ranges...)
		if c.annotation != "" {
			svc.Annotations = map[string]string{corev1.AnnotationLoadBalancerSourceRangesKey: c.annotation}
		}
		guarded, ranges := sources(svc, true)
		var texts []string
		for _, p := range ranges {
			texts = append(texts, p.String())
		}
		if got := strings.Join(texts, " "); guarded != c.guarded || got != c.want {
			t.Errorf("%s: %t %q, want %t %q", name, guarded, got, c.guarded, c.want)
		}
	}
}

// TestHints chooses endpoints by topology hints, with the cases of kube-proxy's topology_test.
func TestHints(t *testing.T) {
	t.Parallel()
	hint := func(ready bool, node string, zones ...string) candidate {
		c := candidate{ready: ready, terminating: !ready, hints: &discoveryv1.EndpointHints{}}
		for _, z := range zones {
			c.hints.ForZones = append(c.hints.ForZones, discoveryv1.ForZone{Name: z})
		}
		if node != "" {
			c.hints.ForNodes = []discoveryv1.ForNode{{Name: node}}
		}
		return c
	}
	for name, c := range map[string]struct {
		zone  string
		local bool
		all   []candidate
		want  []int // indexes of the chosen candidates
	}{
		"hints for the zone": {zone: "a", all: []candidate{hint(true, "", "a"), hint(true, "", "b"),
			hint(true, "", "b", "a")}, want: []int{0, 2}},
		"hints for the node before the zone": {zone: "a", all: []candidate{hint(true, "here", "a"), hint(true, "there", "a")},
			want: []int{0}},
		"no hint for the node": {zone: "a", all: []candidate{hint(true, "other", "a"),
			hint(true, "there", "b")}, want: []int{0}},
		"a node hint is missing": {zone: "a", all: []candidate{hint(true, "here", "a"), hint(true, "", "a")},
			want: []int{0, 1}},
		"a hint is missing":      {zone: "a", all: []candidate{hint(true, "", "a"), {ready: true}}, want: []int{0, 1}},
		"a zone hint is missing": {zone: "a", all: []candidate{hint(true, "", "a"), hint(true, "")}, want: []int{0, 1}},
		"no hint for the zone": {zone: "c", all: []candidate{hint(true, "", "a"), hint(true, "", "b")},
			want: []int{0, 1}},
		"node without a zone": {all: []candidate{hint(true, "", "a"), hint(true, "", "b")}, want: []int{0, 1}},
		"ready endpoints only": {zone: "a", all: []candidate{hint(true, "", "a"), {terminating: true},
			hint(true, "", "b")}, want: []int{0}},
		"terminating endpoints": {zone: "a", all: []candidate{hint(false, "", "a"), hint(false, "", "b")},
			want: []int{0, 1}},
		"policy Local": {zone: "a", local: true, all: []candidate{hint(true, "", "b"),
			hint(true, "", "a")}, want: []int{0, 1}},
	} {
		for i := range c.all {
			c.all[i].Endpoint = endpointOf(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80), true)
		}
		var got []int
		for _, e := range route(c.all, c.local, Node{Name: "here", Zone: c.zone}).Endpoints {
			got = append(got, int(e.Addr().As4()[3]))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestFlush flushes the ruleset, as another program may. The proxy restores its tables, and its own changes wake no
// watcher of removals.
func TestFlush(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		removals := nft.Watch(t.Context())
		a := w.pod().serve("a", 8080)
		w.set(service(), endpointSlices([]string{a.ip, a.ip6}))
		w.set(service(), nil)
		w.set(service(), endpointSlices([]string{a.ip, a.ip6}))
		before := w.ruleset()
		select {
		case <-removals:
			t.Error("changes of the proxy count as a removal")
		default:
		}
		run := func(command string) {
			if out, err := exec.Command("nft", command).CombinedOutput(); err != nil {
				t.Errorf("nft %s: %v %s", command, err, out)
			}
		}
		run("flush ruleset")
		run("add table ip foreign")
		select {
		case <-removals:
		case <-time.After(harness.Bound):
			t.Error("no notification of the flush")
		}
		if err := w.proxy.Verify(); err != nil {
			t.Error(err)
		}
		w.sync()
		if after := strings.ReplaceAll(w.ruleset(), "table ip foreign {\n}\n", ""); after != before {
			t.Errorf("after a flush:\n%s\nbefore:\n%s", after, before)
		}
		if got, err := w.self().ask("tcp", "10.96.0.5:80"); err != nil {
			t.Errorf("connection to the Service after a flush: %q, %v", got, err)
		}
	})
}
