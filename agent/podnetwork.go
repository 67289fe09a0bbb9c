package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"monopod/agent/network/cni/ipam"
	"monopod/agent/network/dns"
	"monopod/agent/network/nodes"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
)

// PodNetwork are the flags of Monopod's own pod network.
type PodNetwork struct {
	PodCIDR string // the ranges of pods' addresses, of one or both IP families; empty: chosen
	// NodeNetwork says how packets reach the pods of other nodes.
	NodeNetwork       string
	WireGuardPort     uint16
	WireGuardEndpoint string // address and port; empty: the node's address and WireGuardPort
	Stubs             dns.Stubs

	ranges   []netip.Prefix // PodCIDR, set by complete
	endpoint netip.AddrPort // WireGuardEndpoint, set by complete
}

// Flags adds the flags. --pod-cidr differs from kubelet's flag, which is only for a kubelet without an API server.
func (n *PodNetwork) Flags(f *pflag.FlagSet) {
	f.StringVar(&n.PodCIDR, "pod-cidr", "",
		"CIDR range of the IP addresses of pods, or one range of each IP family, separated by a comma, in Monopod's own pod "+
			"network. At most 65536 addresses of an IPv6 range are used. Empty: for each family of "+
			"--service-cluster-ip-range, a free part of 10.88.0.0/13 or a random /64 of fd00::/8.")
	f.StringVar(&n.NodeNetwork, "node-network", string(nodes.Auto),
		"How packets reach the pods of other nodes: routes, unencrypted through the addresses of nodes in the same subnet; "+
			"wireguard, encrypted; vxlan, unencrypted; auto, the first of these that both nodes can use; none, which "+
			"leaves it to the administrator; or cni, which leaves the network of all pods to a CNI network of the administrator "+
			"(/etc/cni/net.d and /opt/cni/bin).")
	f.Uint16Var(&n.WireGuardPort, "wireguard-port", 51820, "UDP port of WireGuard, for packets of other nodes.")
	f.StringVar(&n.WireGuardEndpoint, "wireguard-endpoint", "",
		"IP address and UDP port at which other nodes reach WireGuard of this node, for example of a NAT that forwards it. "+
			"Empty: the address of the node and --wireguard-port. A node behind a NAT that does not forward it reaches "+
			"others, and they answer.")
	n.Stubs.Flags(f)
}

// isCNI reports whether the pods have a network of the administrator.
func (n *PodNetwork) isCNI() bool { return n.NodeNetwork == string(nodes.CNI) }

// complete parses the ranges, which must have room for the pods.
func (n *PodNetwork) complete(pods int) error {
	n.ranges, n.endpoint = nil, netip.AddrPort{}
	all := []string{string(nodes.Auto), string(nodes.ModeRoutes), string(nodes.ModeWireGuard), string(nodes.ModeVXLAN),
		string(nodes.None), string(nodes.CNI)}
	if !slices.Contains(all, cmp.Or(n.NodeNetwork, all[0])) {
		return fmt.Errorf("--node-network must be one of %s, got %q", strings.Join(all, ", "), n.NodeNetwork)
	}
	if n.WireGuardEndpoint != "" {
		var err error
		if n.endpoint, err = netip.ParseAddrPort(n.WireGuardEndpoint); err != nil {
			return fmt.Errorf("--wireguard-endpoint must be an IP address and a port, like 203.0.113.5:51820: %w", err)
		}
	}
	if n.PodCIDR == "" {
		return nil
	}
	for text := range strings.SplitSeq(n.PodCIDR, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		switch {
		case err != nil:
			return fmt.Errorf("--pod-cidr: %w", err)
		case p != p.Masked():
			return fmt.Errorf("--pod-cidr: %s has bits beyond its length; did you mean %s?", p, p.Masked())
		case ipam.Capacity(p) < pods:
			return fmt.Errorf("--pod-cidr: %s has addresses for %d pods, fewer than --max-pods=%d", p, max(0, ipam.Capacity(p)),
				pods)
		}
		n.ranges = append(n.ranges, p)
	}
	if r := n.ranges; len(r) > 2 || len(r) == 2 && r[0].Addr().Is4() == r[1].Addr().Is4() {
		return fmt.Errorf("--pod-cidr: %q must be one range, or one of IPv4 and one of IPv6", n.PodCIDR)
	}
	return nil
}

// CheckServices returns an error if the ranges of pods overlap those of Services, or lack one of their IP families.
func (n *PodNetwork) CheckServices(services []netip.Prefix) error {
	for _, service := range services {
		family := false
		for _, pods := range n.ranges {
			if pods.Overlaps(service) {
				return fmt.Errorf("--pod-cidr: %s overlaps %s of --service-cluster-ip-range", pods, service)
			}
			family = family || pods.Addr().Is4() == service.Addr().Is4()
		}
		if len(n.ranges) > 0 && !family {
			return fmt.Errorf("--pod-cidr: %q has no range of the IP family of %s of --service-cluster-ip-range", n.PodCIDR,
				service)
		}
	}
	return nil
}

// families returns the IP families of pods; the first is the primary one.
func (n *PodNetwork) families(services []netip.Prefix) []corev1.IPFamily {
	ranges := n.ranges
	if len(ranges) == 0 {
		ranges = services
	}
	return familiesOf(ranges)
}

func familiesOf(ranges []netip.Prefix) []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, r := range ranges {
		if r.Addr().Is4() {
			out = append(out, corev1.IPv4Protocol)
		} else {
			out = append(out, corev1.IPv6Protocol)
		}
	}
	return out
}
