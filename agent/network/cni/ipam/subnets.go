package ipam

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"

	"monopod/agent/network/retry"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
)

// ipv4Range contains the IPv4 subnets of all instances: 2,048 of /24, or fewer larger ones.
var ipv4Range = netip.MustParsePrefix("10.88.0.0/13")

// subnetBits6 is the length of an IPv6 subnet, which is a random one of fd00::/8 (RFC 4193).
const subnetBits6 = 64

// Plan contains the facts on which the choice of subnets depends.
type Plan struct {
	ID   string // of the instance
	Pods int    // maximum number
	// Configured are the ranges of pods, one or two of different IP families; empty: one is chosen for each family of
	// Services.
	Configured []netip.Prefix
	Services   []netip.Prefix // ranges of Services
	Previous   []netip.Prefix // subnets of the previous start
	Used       []netip.Addr   // addresses of running pods
	Taken      []netip.Prefix // subnets of other links, and ranges of Services
	Log        *zap.Logger
}

// Choose returns one subnet of each configured family, in this order of preference: the previous one while pods use it,
// unless another link has it now; the configured one; the previous one if it is large enough and free; any free one. A
// family that is no longer configured remains while pods use it.
func (p Plan) Choose() []netip.Prefix {
	var out []netip.Prefix
	for _, is4 := range p.families() {
		out = append(out, p.subnet(is4))
	}
	for _, previous := range p.Previous {
		if !slices.ContainsFunc(out, SameFamily(previous.Addr().Is4())) && p.inUse(previous) && free(previous, p.Taken) {
			p.Log.Warn("pods still use an IP family that is no longer configured; it is removed at the next start without pods",
				zap.Stringer("subnet", previous))
			out = append(out, previous)
		}
	}
	return out
}

// families reports for each configured family whether it is IPv4.
func (p Plan) families() []bool {
	ranges := p.Configured
	if len(ranges) == 0 {
		ranges = p.Services
	}
	var out []bool
	for _, r := range ranges {
		out = append(out, r.Addr().Is4())
	}
	if len(out) == 0 {
		return []bool{true}
	}
	return out
}

// SameFamily returns a function that reports whether a range is of the family.
func SameFamily(is4 bool) func(netip.Prefix) bool {
	return func(p netip.Prefix) bool { return p.Addr().Is4() == is4 }
}

func (p Plan) inUse(subnet netip.Prefix) bool { return slices.ContainsFunc(p.Used, subnet.Contains) }

func (p Plan) subnet(is4 bool) netip.Prefix {
	previous, configured := Find(p.Previous, is4), Find(p.Configured, is4)
	fits := previous.IsValid() && (!is4 || previous.Bits() <= bitsFor(p.Pods))
	switch usable := previous.IsValid() && free(previous, p.Taken); {
	case usable && p.inUse(previous):
		if configured.IsValid() && configured != previous {
			p.Log.Warn("pods still use the old pod network; --pod-cidr takes effect at the next start without pods",
				zap.Stringer("subnet", previous), zap.Stringer("podCIDR", configured))
		} else if !configured.IsValid() && !fits {
			p.Log.Warn("pod network is smaller than twice --max-pods; it grows at the next start without pods",
				zap.Stringer("subnet", previous))
		}
		return previous
	case configured.IsValid():
		if !free(configured, p.Taken) {
			p.Log.Warn("another link of this machine has a route or address within --pod-cidr: "+
				"parts of the pod network may be unreachable", zap.Stringer("podCIDR", configured))
		}
		return configured
	case usable && fits:
		return previous
	case is4:
		return p.choose4()
	default:
		return p.choose6()
	}
}

// Find returns the range of a family; invalid: there is none.
func Find(ranges []netip.Prefix, is4 bool) netip.Prefix {
	if i := slices.IndexFunc(ranges, SameFamily(is4)); i >= 0 {
		return ranges[i]
	}
	return netip.Prefix{}
}

// bitsFor returns the length of the IPv4 prefix that has twice as many addresses as pods, so that addresses are reused
// late: Kubernetes also uses a /24 for 110 pods.
func bitsFor(pods int) int {
	const gateway, network, broadcast = 1, 1, 1
	return min(24, 32-bits.Len(uint(2*pods+gateway+network+broadcast-1)))
}

// Capacity returns the number of pods for which a range has addresses; at most 65,533 with IPv6.
func Capacity(subnet netip.Prefix) int {
	const network, gateway, broadcast = 1, 1, 1
	return Size(subnet) - network - gateway - broadcast
}

// Gateway returns the bridge's address in a subnet: the first one.
func Gateway(subnet netip.Prefix) netip.Addr { return subnet.Masked().Addr().Next() }

// Size returns the number of addresses of a subnet that are used: for IPv6 at most the first 65,536, as with kubelet's
// --pod-cidr.
func Size(subnet netip.Prefix) int {
	hostBits := subnet.Addr().BitLen() - subnet.Bits()
	if subnet.Addr().Is6() {
		hostBits = min(hostBits, 16)
	}
	return 1 << hostBits
}

// choose4 returns the first free subnet of ipv4Range at or after the hash of the instance's name.
func (p Plan) choose4() (out netip.Prefix) {
	length := max(bitsFor(p.Pods), ipv4Range.Bits()+1)
	subnets := uint32(1) << (length - ipv4Range.Bits())
	start := Hash(p.ID)
	for i := range subnets {
		if out = subnet((start+i)%subnets, length); free(out, p.Taken) {
			break
		}
	}
	return out
}

// choose6 returns a subnet whose 40 random bits and subnet number derive from the instance's name.
func (p Plan) choose6() (out netip.Prefix) {
	for i := range 16 {
		sum := sha256.Sum256(fmt.Append(nil, "pods of ", p.ID, " ", i))
		ip := [16]byte{0xfd}
		copy(ip[1:subnetBits6/8], sum[:])
		if out = netip.PrefixFrom(netip.AddrFrom16(ip), subnetBits6); free(out, p.Taken) {
			break
		}
	}
	return out
}

// subnet returns the i-th subnet of the length in ipv4Range.
func subnet(i uint32, length int) netip.Prefix {
	base := ipv4Range.Addr().As4()
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], binary.BigEndian.Uint32(base[:])+i<<(32-length))
	return netip.PrefixFrom(netip.AddrFrom4(ip), length)
}

func free(p netip.Prefix, taken []netip.Prefix) bool {
	return !slices.ContainsFunc(taken, p.Overlaps)
}

// Hash returns the FNV-1a hash.
func Hash(s string) uint32 {
	h := uint32(2166136261)
	for _, b := range []byte(s) {
		h = (h ^ uint32(b)) * 16777619
	}
	return h
}

// WithoutPods returns the ranges of Services that contain no addresses of pods.
func WithoutPods(subnets, services []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(services),
		func(p netip.Prefix) bool { return slices.ContainsFunc(subnets, p.Overlaps) })
}

// Taken lists the subnets of the addresses and routes of the host's links, except those of the named links and default
// routes.
func Taken(except ...string) ([]netip.Prefix, error) {
	var own []int
	for _, name := range except {
		if link, err := netlink.LinkByName(name); err == nil {
			own = append(own, link.Attrs().Index)
		}
	}
	var taken []netip.Prefix
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := retry.All(func() ([]netlink.Route, error) { return netlink.RouteList(nil, family) })
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		addrs, err := retry.All(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, family) })
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		for _, r := range routes {
			if p := PrefixOf(r.Dst); !slices.Contains(own, r.LinkIndex) && p.Bits() > 0 {
				taken = append(taken, p)
			}
		}
		for _, a := range addrs {
			if p := PrefixOf(a.IPNet); !slices.Contains(own, a.LinkIndex) && p.IsValid() {
				taken = append(taken, p)
			}
		}
	}
	return taken, nil
}

// IPNet returns a Prefix as netlink needs it.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// PrefixOf returns a network as a Prefix, which is invalid for nil.
func PrefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	ip, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}
	}
	length, _ := n.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), length).Masked()
}
