package nodes

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/network/cni/ipam"
)

// nodeWith returns a Node; each fact is "cidr=…", "ip=…" or one of the annotations: "subnets=…", "key=…", "endpoint=…",
// "mac=…", where own is the one that the node must have.
func nodeWith(name string, all ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for _, fact := range all {
		what, value, _ := strings.Cut(fact, "=")
		switch what {
		case "cidr":
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, value)
		case "ip":
			node.Status.Addresses = append(node.Status.Addresses,
				corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: value})
		case "subnets":
			node.Annotations[SubnetsAnnotation] = value
		case "key":
			node.Annotations[KeyAnnotation] = keyOf(value).String()
		case "endpoint":
			node.Annotations[EndpointAnnotation] = value
		case "mac":
			if value == "own" {
				value = macOf(ipam.Gateway(factsOf(node).ranges[0])).String()
			}
			node.Annotations[MACAnnotation] = value
		}
	}
	return node
}

func keyOf(text string) wgtypes.Key {
	var key wgtypes.Key
	copy(key[:], text)
	return key
}

// texts describes a plan.
func (p Plan) texts() []string {
	var out []string
	for _, r := range p.Routes {
		text := "route " + r.To.String()
		if r.Via.IsValid() {
			text += " via " + r.Via.String()
		}
		out = append(out, strings.TrimSpace(text+" "+string(r.Tunnel)))
	}
	for _, peer := range p.Peers {
		out = append(out, fmt.Sprintf("peer %s at %s %v", strings.TrimRight(string(peer.Key[:]), "\x00"), peer.Endpoint,
			peer.Ranges))
	}
	for _, n := range p.Neighbors {
		out = append(out, fmt.Sprintf("neighbor %s at %s %v", n.MAC, n.At, n.Vias))
	}
	if p.Overhead > 0 {
		out = append(out, fmt.Sprint("overhead ", p.Overhead))
	}
	return out
}

func TestPlan(t *testing.T) {
	t.Parallel()
	own := []string{"cidr=10.88.0.0/24", "ip=192.168.1.1", "subnets=192.168.1.1/24"}
	for _, tt := range []struct {
		name        string
		own         []string
		others      []*corev1.Node
		want        []string
		unreachable string
	}{
		{"alone", own, nil, nil, ""},
		{"in the same subnet", append(own, "key=a", "mac=own"),
			[]*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "ip=192.168.1.2", "subnets=192.168.1.2/24", "key=b")},
			[]string{"route 10.88.1.0/24 via 192.168.1.2"}, ""},
		{"that says nothing, in the same subnet", own, []*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "ip=192.168.1.2")},
			[]string{"route 10.88.1.0/24 via 192.168.1.2"}, ""},
		{"that is in this one's subnet, but has a smaller one", append(own, "key=a"),
			[]*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "ip=192.168.1.200", "subnets=192.168.1.200/28", "key=b",
				"endpoint=192.168.1.200:51820")},
			[]string{"route 10.88.1.0/24 wireguard", "peer b at 192.168.1.200:51820 [10.88.1.0/24]", "overhead 80"}, ""},
		{"that accepts only WireGuard", append(own, "key=a"),
			[]*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "ip=192.168.1.2", "key=b")},
			[]string{"route 10.88.1.0/24 wireguard", "peer b at invalid AddrPort [10.88.1.0/24]", "overhead 80"}, ""},
		{"in another subnet, with WireGuard and VXLAN", append(own, "key=a", "mac=own"),
			[]*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "ip=10.0.0.2", "subnets=10.0.0.2/8", "key=b",
				"mac=own", "endpoint=[2001:db8::2]:1")},
			[]string{"route 10.88.1.0/24 wireguard", "peer b at [2001:db8::2]:1 [10.88.1.0/24]", "overhead 80"}, ""},
		{"without WireGuard", append(own, "key=a", "mac=own"),
			[]*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "ip=10.0.0.2", "mac=own")},
			[]string{"route 10.88.1.0/24 via 10.88.1.1 vxlan", "neighbor 0a:59:a9:00:51:21 at 10.0.0.2 [10.88.1.1]",
				"overhead 50"}, ""},
		{"VXLAN over IPv6", []string{"cidr=10.88.0.0/24", "ip=2001:db8::1", "mac=own"},
			[]*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "ip=2001:db8:1::2", "mac=own")},
			[]string{"route 10.88.1.0/24 via 10.88.1.1 vxlan",
				"neighbor 0a:59:a9:00:51:21 at 2001:db8:1::2 [10.88.1.1]", "overhead 70"}, ""},
		{"VXLAN without a common family", append(own, "mac=own"),
			[]*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "ip=2001:db8:1::2", "mac=own")}, nil, "b"},
		{"without a tunnel", own, []*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "ip=10.0.0.2")}, nil, "b"},
		{"without ranges", own, []*corev1.Node{nodeWith("b", "ip=192.168.1.2")}, nil, ""},
		{"dual stack", append(own, "cidr=fd88:0:0:0::/64", "ip=2001:db8::1", "subnets=192.168.1.1/24,2001:db8::1/64"),
			[]*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "cidr=fd88:0:0:1::/64", "ip=192.168.1.2", "ip=2001:db8::2",
				"subnets=192.168.1.2/24,2001:db8::2/64")},
			[]string{"route 10.88.1.0/24 via 192.168.1.2", "route fd88:0:0:1::/64 via 2001:db8::2"}, ""},
		{"dual stack, in the same subnet of one family only: all through the tunnel",
			append(own, "cidr=fd88:0:0:0::/64", "ip=2001:db8::1", "key=a"),
			[]*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "cidr=fd88:0:0:1::/64", "ip=192.168.1.2",
				"subnets=192.168.1.2/24", "key=b", "endpoint=192.168.1.2:51820")},
			[]string{"route 10.88.1.0/24 wireguard", "route fd88:0:0:1::/64 wireguard",
				"peer b at 192.168.1.2:51820 [10.88.1.0/24 fd88:0:0:1::/64]", "overhead 80"}, ""},
		{"with a family that this one's pods lack", own,
			[]*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "cidr=fd88:0:0:1::/64", "ip=192.168.1.2",
				"subnets=192.168.1.2/24")},
			[]string{"route 10.88.1.0/24 via 192.168.1.2"}, ""},
		{"with ranges of this and an older one", own,
			[]*corev1.Node{
				nodeWith("b", "cidr=10.88.0.0/25", "ip=192.168.1.2", "subnets=192.168.1.2/24"),
				nodeWith("c", "cidr=10.88.2.0/24", "ip=192.168.1.3", "subnets=192.168.1.3/24"),
				nodeWith("d", "cidr=10.88.2.0/24", "ip=192.168.1.4", "subnets=192.168.1.4/24"),
			}, []string{"route 10.88.2.0/24 via 192.168.1.3"}, "b d"},
		{"that claims the address of this one", append(own, "key=a"),
			[]*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "ip=192.168.1.1", "subnets=192.168.1.1/24")}, nil, "b"},
		{"that claims the address of another", own,
			[]*corev1.Node{
				nodeWith("a", "cidr=10.88.2.0/24", "ip=192.168.1.3", "subnets=192.168.1.3/24"),
				nodeWith("b", "cidr=10.88.1.0/24", "ip=192.168.1.3", "subnets=192.168.1.3/24"),
			}, []string{"route 10.88.2.0/24 via 192.168.1.3", "route 10.88.1.0/24 via 192.168.1.3"}, ""},
		{"that claims the key of an older one", append(own, "key=a"),
			[]*corev1.Node{
				nodeWith("b", "cidr=10.88.1.0/24", "ip=10.0.0.2", "key=b", "endpoint=10.0.0.2:51820"),
				nodeWith("c", "cidr=10.88.2.0/24", "ip=10.0.0.3", "key=b", "endpoint=10.0.0.3:51820"),
			}, []string{"route 10.88.1.0/24 wireguard", "peer b at 10.0.0.2:51820 [10.88.1.0/24]", "overhead 80"}, "c"},
		{"that claims the key of this one", append(own, "key=a"),
			[]*corev1.Node{nodeWith("b", "cidr=10.88.1.0/24", "ip=10.0.0.2", "key=a")}, nil, "b"},
		{"that claims the link address of another", append(own, "mac=own"),
			[]*corev1.Node{
				nodeWith("b", "cidr=10.88.2.0/24", "ip=10.0.0.2", "mac=0a:59:a9:00:51:21"),
				nodeWith("c", "cidr=10.88.1.0/24", "ip=10.0.0.3", "mac=own"),
			}, []string{"route 10.88.1.0/24 via 10.88.1.1 vxlan", "neighbor 0a:59:a9:00:51:21 at 10.0.0.3 [10.88.1.1]",
				"overhead 50"}, "b"},
	} {
		var others []facts
		for _, node := range tt.others {
			others = append(others, factsOf(node))
		}
		p, unreachable := newPlan(factsOf(nodeWith("own", tt.own...)), others)
		if diff := cmp.Diff(tt.want, p.texts()); diff != "" {
			t.Errorf("a node %s: %s", tt.name, diff)
		}
		if got := strings.Join(unreachable, " "); got != tt.unreachable {
			t.Errorf("a node %s: not reachable: %q, want %q", tt.name, got, tt.unreachable)
		}
	}
}

// Two nodes take the same way to each other, whatever they say about themselves.
func TestBothNodesChooseTheSameWay(t *testing.T) {
	t.Parallel()
	var all []facts
	for _, subnets := range []string{"", "192.168.1.%d/24", "192.168.1.%d/28", "10.0.0.%d/24"} {
		for _, key := range []string{"", "key=%d"} {
			for _, mac := range []string{"", "mac=own"} {
				i := len(all) + 1
				given := []string{fmt.Sprintf("cidr=10.88.%d.0/24", i), fmt.Sprintf("ip=192.168.1.%d", i*3)}
				if subnets != "" {
					given = append(given, "subnets="+fmt.Sprintf(subnets, i*3))
				}
				for _, format := range []string{key, mac} {
					if format != "" {
						given = append(given, strings.ReplaceAll(format, "%d", fmt.Sprint(i)))
					}
				}
				all = append(all, factsOf(nodeWith(fmt.Sprint(i), given...)))
			}
		}
	}
	for _, a := range all {
		for _, b := range all {
			if a.name != b.name && !a.silent && !b.silent && choose(a, b) != choose(b, a) {
				t.Errorf("%+v and %+v take the ways %v and %v", a, b, choose(a, b), choose(b, a))
			}
		}
	}
}

func TestFacts(t *testing.T) {
	t.Parallel()
	node := nodeWith("a", "cidr=10.88.1.0/24", "ip=192.168.1.2", "subnets=192.168.1.2/24,2001:db8::2/64", "key=a",
		"endpoint=192.168.1.2:51820", "mac=own")
	f := factsOf(node)
	if diff := cmp.Diff(node.Annotations, f.annotations()); diff != "" || f.silent {
		t.Errorf("silent %v, annotations: %s", f.silent, diff)
	}
	if _, changed := changedAnnotations(node.Annotations, f.annotations()); changed {
		t.Error("annotations that are the same count as changed")
	}
	f.mac, f.key = "", wgtypes.Key{}
	change, changed := changedAnnotations(node.Annotations, f.annotations())
	want := map[string]string{KeyAnnotation: "", EndpointAnnotation: "", MACAnnotation: ""}
	if diff := cmp.Diff(want, change); diff != "" || !changed {
		t.Error(diff)
	}
	broken := factsOf(nodeWith("b", "cidr=ten", "ip=x", "subnets=y", "endpoint=z", "mac=0a:59:00:00:00:01"))
	if len(broken.ranges)+len(broken.ips)+len(broken.subnets) > 0 || broken.endpoint.IsValid() || broken.mac != "" {
		t.Errorf("facts that do not parse: %+v", broken)
	}
}

func TestTunnels(t *testing.T) {
	t.Parallel()
	near := nodeWith("near", "cidr=10.88.1.0/24", "ip=192.168.1.2", "subnets=192.168.1.2/24")
	far := nodeWith("far", "cidr=10.88.2.0/24", "ip=10.0.0.2", "subnets=10.0.0.2/24")
	vxlanOnly := nodeWith("vxlan", "cidr=10.88.3.0/24", "ip=10.0.0.3", "mac=own")
	registering := nodeWith("new", "cidr=10.88.4.0/24")
	for _, tt := range []struct {
		mode        Mode
		others      []*corev1.Node
		noWireGuard bool
		want        string
	}{
		{Auto, nil, false, ""}, {Auto, []*corev1.Node{near, registering}, false, ""},
		{Auto, []*corev1.Node{near, far}, false, "wireguard"}, {Auto, []*corev1.Node{far}, true, "vxlan"},
		{Auto, []*corev1.Node{vxlanOnly}, false, "wireguard vxlan"},
		{ModeRoutes, []*corev1.Node{far}, false, ""}, {ModeWireGuard, []*corev1.Node{far}, false, "wireguard"},
		{ModeVXLAN, []*corev1.Node{far}, false, "vxlan"},
	} {
		var others []facts
		for _, node := range tt.others {
			others = append(others, factsOf(node))
		}
		own := factsOf(nodeWith("own", "cidr=10.88.0.0/24", "ip=192.168.1.1", "subnets=192.168.1.1/24"))
		wireGuard, vxlan := tunnels(tt.mode, own, others, tt.noWireGuard)
		var got []string
		if wireGuard {
			got = append(got, "wireguard")
		}
		if vxlan {
			got = append(got, "vxlan")
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("mode %s, %d others: %v, want %q", tt.mode, len(others), got, tt.want)
		}
	}
}

func TestPeerChanges(t *testing.T) {
	t.Parallel()
	now := time.Unix(10000, 0)
	said, learned := netip.MustParseAddrPort("192.0.2.1:51820"), netip.MustParseAddrPort("198.51.100.7:40000")
	ranges := []netip.Prefix{netip.MustParsePrefix("10.88.1.0/24")}
	want := []Peer{{Key: keyOf("b"), Endpoint: said, Ranges: ranges}}
	peer := func(handshake time.Duration, allowed string) wgtypes.Peer {
		_, n, _ := net.ParseCIDR(allowed)
		return wgtypes.Peer{PublicKey: keyOf("b"), Endpoint: net.UDPAddrFromAddrPort(learned),
			PersistentKeepaliveInterval: keepalive, LastHandshakeTime: now.Add(-handshake), AllowedIPs: []net.IPNet{*n}}
	}
	for _, tt := range []struct {
		name    string
		have    []wgtypes.Peer
		want    []Peer
		written map[string]netip.AddrPort
		changes []string
	}{
		{"new", nil, want, nil, []string{"b endpoint ranges keepalive"}},
		{"unchanged, and WireGuard has learned another endpoint", []wgtypes.Peer{peer(time.Hour, "10.88.1.0/24")}, want,
			map[string]netip.AddrPort{keyOf("b").String(): said}, nil},
		{"that says another endpoint", []wgtypes.Peer{peer(0, "10.88.1.0/24")}, want,
			map[string]netip.AddrPort{keyOf("b").String(): learned}, []string{"b endpoint"}},
		{"that answers, after a start", []wgtypes.Peer{peer(time.Minute, "10.88.1.0/24")}, want, nil, nil},
		{"that does not answer, after a start", []wgtypes.Peer{peer(time.Hour, "10.88.1.0/24")}, want, nil,
			[]string{"b endpoint"}},
		{"with other ranges", []wgtypes.Peer{peer(0, "10.88.9.0/24")}, want, nil, []string{"b ranges"}},
		{"that is gone", []wgtypes.Peer{peer(0, "10.88.1.0/24")}, nil, nil, []string{"b remove"}},
	} {
		var got []string
		for _, c := range peerChanges(tt.have, tt.want, tt.written, now) {
			text := strings.TrimRight(string(c.PublicKey[:]), "\x00")
			if c.Remove {
				text += " remove"
			}
			if c.Endpoint != nil {
				text += " endpoint"
			}
			if c.ReplaceAllowedIPs {
				text += " ranges"
			}
			if c.PersistentKeepaliveInterval != nil {
				text += " keepalive"
			}
			got = append(got, text)
		}
		if !slices.Equal(got, tt.changes) {
			t.Errorf("a peer %s: %v, want %v", tt.name, got, tt.changes)
		}
	}
}
