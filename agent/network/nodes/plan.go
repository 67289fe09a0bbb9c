package nodes

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/network/cni/ipam"
	"monopod/apiserver/kit/podcidr"
)

// Annotations of a Node, by which others learn how to reach its pods. A node accepts each way for which it has one.
const (
	// SubnetsAnnotation contains the node's addresses with the lengths of their directly connected subnets: the node
	// accepts plain packets from nodes there.
	SubnetsAnnotation = "monopod.io/node-subnets"
	// KeyAnnotation is the public key of the node's WireGuard. The API server refuses that of another node.
	KeyAnnotation = podcidr.WireGuardKey
	// EndpointAnnotation is the address and the UDP port at which others reach the node's WireGuard.
	EndpointAnnotation = "monopod.io/wireguard-endpoint"
	// MACAnnotation is the link address of the node's VXLAN, which is that of macOf: another one could be that of another
	// node, and is not believed.
	MACAnnotation = "monopod.io/vxlan-mac"
)

var annotations = []string{SubnetsAnnotation, KeyAnnotation, EndpointAnnotation, MACAnnotation}

// facts are what a Node says about how to reach its pods.
type facts struct {
	name     string
	created  int64          // seconds
	ranges   []netip.Prefix // of its pods
	ips      []netip.Addr   // InternalIPs
	subnets  []netip.Prefix // its addresses with the lengths of their subnets
	key      wgtypes.Key    // zero: none
	endpoint netip.AddrPort // zero: none
	mac      string         // empty: none
	silent   bool           // it has no annotation: it may be a node of another network that routes
}

func factsOf(node *corev1.Node) facts {
	f := facts{name: node.Name, created: node.CreationTimestamp.Unix(), ranges: podcidr.Of(node), silent: true}
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			f.ips = append(f.ips, ip.Unmap())
		}
	}
	for _, name := range annotations {
		_, has := node.Annotations[name]
		f.silent = f.silent && !has
	}
	for text := range strings.SplitSeq(node.Annotations[SubnetsAnnotation], ",") {
		if p, err := netip.ParsePrefix(text); err == nil {
			f.subnets = append(f.subnets, p)
		}
	}
	f.key, _ = wgtypes.ParseKey(node.Annotations[KeyAnnotation])
	f.endpoint, _ = netip.ParseAddrPort(node.Annotations[EndpointAnnotation])
	if len(f.ranges) > 0 {
		if mac := macOf(ipam.Gateway(f.ranges[0])).String(); node.Annotations[MACAnnotation] == mac {
			f.mac = mac
		}
	}
	return f
}

// annotations returns the annotations that the node has.
func (f facts) annotations() map[string]string {
	out := map[string]string{}
	var subnets []string
	for _, p := range f.subnets {
		subnets = append(subnets, p.String())
	}
	if len(subnets) > 0 {
		out[SubnetsAnnotation] = strings.Join(subnets, ",")
	}
	if f.key != (wgtypes.Key{}) {
		out[KeyAnnotation] = f.key.String()
		if f.endpoint.IsValid() {
			out[EndpointAnnotation] = f.endpoint.String()
		}
	}
	if f.mac != "" {
		out[MACAnnotation] = f.mac
	}
	return out
}

// underlay is the address to which other nodes send tunnelled packets: an IPv4 one, if there is one.
func (f facts) underlay() netip.Addr {
	if i := slices.IndexFunc(f.ips, netip.Addr.Is4); i >= 0 {
		return f.ips[i]
	}
	if len(f.ips) > 0 {
		return f.ips[0]
	}
	return netip.Addr{}
}

// way is how packets reach the pods of a node.
type way int

const (
	noWay way = iota
	routed
	byWireGuard
	byVXLAN
)

// choose returns the way between two nodes: the first that both accept. It is the same from both sides.
func choose(own, other facts) way {
	switch {
	case onLink(own, other) && (other.silent || onLink(other, own)):
		return routed
	case own.key != (wgtypes.Key{}) && other.key != (wgtypes.Key{}):
		return byWireGuard
	case own.mac != "" && other.mac != "" && own.underlay().IsValid() && other.underlay().IsValid() &&
		own.underlay().Is4() == other.underlay().Is4():
		return byVXLAN
	}
	return noWay
}

// onLink reports whether a directly connected subnet of the node contains an address of the other, for each family of
// the pods of both.
func onLink(from, to facts) bool {
	families := 0
	for _, p := range to.ranges {
		if !hasFamily(from.ranges, p.Addr().Is4()) {
			continue
		}
		if families++; !via(from, to, p.Addr().Is4()).IsValid() {
			return false
		}
	}
	return families > 0
}

// via returns the address of a node in a directly connected subnet of another; invalid: there is none. A node that
// claims an address of the other one has none there.
func via(from, to facts, is4 bool) netip.Addr {
	for _, ip := range to.ips {
		if ip.Is4() == is4 && !slices.Contains(from.ips, ip) &&
			slices.ContainsFunc(from.subnets, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			return ip
		}
	}
	return netip.Addr{}
}

func hasFamily(ranges []netip.Prefix, is4 bool) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Addr().Is4() == is4 })
}

// Tunnel names a link to other nodes.
type Tunnel string

// The tunnels. NoTunnel routes go through a link of the machine.
const (
	NoTunnel  Tunnel = ""
	WireGuard Tunnel = "wireguard"
	VXLAN     Tunnel = "vxlan"
)

// Route leads to the pods of another node.
type Route struct {
	To     netip.Prefix
	Via    netip.Addr // invalid: through the tunnel to whatever peer has the range
	Tunnel Tunnel
}

// Peer is a node that WireGuard reaches.
type Peer struct {
	Key      wgtypes.Key
	Endpoint netip.AddrPort // as the node says; invalid: WireGuard waits for its packets
	Ranges   []netip.Prefix
}

// Neighbor is a node that VXLAN reaches.
type Neighbor struct {
	MAC  string
	At   netip.Addr   // of the node
	Vias []netip.Addr // its addresses in the tunnel: the gateways of its pods
}

// Plan is the desired state of the kernel.
type Plan struct {
	Routes    []Route
	Peers     []Peer     // none: no WireGuard link
	Neighbors []Neighbor // none: no VXLAN link
	Ranges    []netip.Prefix
	Overhead  int // bytes that the largest header of the tunnels in use adds to a packet
}

// The bytes that tunnels add to a packet: the headers of IP, UDP and the tunnel; for VXLAN also an Ethernet header.
// WireGuard finds out by itself whether packets to a peer go over IPv4 or IPv6, so that it is that of IPv6, as with
// wg-quick.
const (
	overheadWireGuard = 80
	overheadVXLAN4    = 50
	overheadVXLAN6    = 70
)

// newPlan returns the desired state for a node, and the nodes that it cannot reach. Ranges that overlap those of the
// node or of an older one are left out, and so are their keys: whatever a node says about itself does not change the way
// to another one.
func newPlan(own facts, others []facts) (p Plan, unreachable []string) {
	others = slices.SortedFunc(slices.Values(others), func(a, b facts) int {
		return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.name, b.name))
	})
	taken, keys := slices.Clone(own.ranges), map[wgtypes.Key]bool{own.key: true}
	for _, other := range others {
		if keys[other.key] {
			other.key = wgtypes.Key{}
		}
		keys[other.key] = true
		var ranges []netip.Prefix
		for _, r := range other.ranges {
			if !slices.ContainsFunc(taken, r.Overlaps) && hasFamily(own.ranges, r.Addr().Is4()) {
				ranges = append(ranges, r)
			}
		}
		taken = append(taken, ranges...)
		if len(ranges) == 0 {
			if len(other.ranges) > 0 {
				unreachable = append(unreachable, other.name)
			}
			continue
		}
		switch choose(own, other) {
		case routed:
			for _, r := range ranges {
				p.Routes = append(p.Routes, Route{To: r, Via: via(own, other, r.Addr().Is4())})
			}
		case byWireGuard:
			p.Peers = append(p.Peers, Peer{Key: other.key, Endpoint: other.endpoint, Ranges: ranges})
			for _, r := range ranges {
				p.Routes = append(p.Routes, Route{To: r, Tunnel: WireGuard})
			}
			p.Overhead = max(p.Overhead, overheadWireGuard)
		case byVXLAN:
			n := Neighbor{MAC: other.mac, At: other.underlay()}
			for _, r := range ranges {
				gateway := r.Addr().Next()
				n.Vias = append(n.Vias, gateway)
				p.Routes = append(p.Routes, Route{To: r, Via: gateway, Tunnel: VXLAN})
			}
			p.Neighbors = append(p.Neighbors, n)
			overhead := overheadVXLAN4
			if n.At.Is6() {
				overhead = overheadVXLAN6
			}
			p.Overhead = max(p.Overhead, overhead)
		default:
			unreachable = append(unreachable, other.name)
			continue
		}
		p.Ranges = append(p.Ranges, ranges...)
	}
	return p, unreachable
}

// tunnels reports which tunnels a node must offer, so that every other one finds a way that both accept: WireGuard as
// soon as another node is not on a directly connected subnet; VXLAN for nodes that do not offer WireGuard, or if this
// one cannot.
func tunnels(mode Mode, own facts, others []facts, noWireGuard bool) (wireGuard, vxlan bool) {
	for _, other := range others {
		if len(other.ranges) == 0 || len(other.ips) == 0 || choose(own, other) == routed {
			continue // perhaps it is still registering
		}
		switch mode {
		case ModeWireGuard:
			wireGuard = true
		case ModeVXLAN:
			vxlan = true
		case Auto:
			wireGuard = wireGuard || !noWireGuard
			vxlan = vxlan || noWireGuard || other.mac != "" && other.key == (wgtypes.Key{})
		}
	}
	return wireGuard, vxlan
}

// changedAnnotations returns the annotations to set on a Node, and whether any differs; empty values are to be deleted.
func changedAnnotations(have, want map[string]string) (map[string]string, bool) {
	change := map[string]string{}
	for _, name := range annotations {
		if value, ok := have[name]; ok != (want[name] != "") || value != want[name] {
			change[name] = want[name]
		}
	}
	return change, len(change) > 0
}
