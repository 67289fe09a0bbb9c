package nodeipam

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/fnv"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/podcidr"
)

// The lengths of the ranges of a Node (upstream's).
const (
	defaultBits4 = 24
	defaultBits6 = 64
	// maxNodeBits is the maximum difference between the lengths of the cluster's range and a Node's (upstream's
	// clusterSubnetMaxDiff).
	maxNodeBits = 16
	// siteBits is the length of the range of one site below fd00::/8 (RFC 4193).
	siteBits = 48
)

// cluster4 is the default range of IPv4: nodes that choose their ranges take them from it, too.
var cluster4 = netip.MustParsePrefix("10.88.0.0/13")

// Defaults returns the ranges of the cluster for the IP families of Services. For IPv4 it is 10.88.0.0/13. For IPv6 it
// is the /48 around the range of the oldest Node that has chosen an IPv6 range of fd00::/8 by itself, which is the node
// of a server, or without one a /48 that derives from the range of Services.
func Defaults(nodes []*corev1.Node, services []netip.Prefix) []netip.Prefix {
	if len(services) == 0 {
		return []netip.Prefix{cluster4}
	}
	var out []netip.Prefix
	for _, p := range services {
		if p.Addr().Is4() {
			out = append(out, cluster4)
		} else {
			out = append(out, site(nodes, p))
		}
	}
	return out
}

func site(nodes []*corev1.Node, services netip.Prefix) netip.Prefix {
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b *corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, node := range nodes {
		if node.Annotations[podcidr.Annotation] != podcidr.Self {
			continue
		}
		for _, p := range podcidr.Of(node) {
			if p.Addr().Is6() && p.Addr().IsPrivate() && p.Bits() > siteBits {
				return netip.PrefixFrom(p.Addr(), siteBits).Masked()
			}
		}
	}
	sum := sha256.Sum256([]byte("pods with services in " + services.String()))
	ip := [16]byte{0xfd}
	copy(ip[1:siteBits/8], sum[:])
	return netip.PrefixFrom(netip.AddrFrom16(ip), siteBits)
}

// free returns a part of the cluster's range that overlaps no taken one: the first one at or after the hash of the
// Node's name, so that a Node that returns most probably has the same range again.
func free(name string, cluster netip.Prefix, bits int, taken []netip.Prefix) (netip.Prefix, bool) {
	hash := fnv.New32a()
	hash.Write([]byte(name))
	count := uint32(1) << min(bits-cluster.Bits(), maxNodeBits)
	for i := range count {
		p := part(cluster, bits, (hash.Sum32()+i)%count)
		if !slices.ContainsFunc(taken, p.Overlaps) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// part returns the i-th part of a range.
func part(cluster netip.Prefix, bits int, i uint32) netip.Prefix {
	at := new(big.Int).Lsh(big.NewInt(int64(i)), uint(cluster.Addr().BitLen()-bits))
	raw := at.Or(at, new(big.Int).SetBytes(cluster.Masked().Addr().AsSlice())).FillBytes(cluster.Addr().AsSlice())
	ip, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(ip, bits)
}

// ParseClusters parses --cluster-cidr: no range, one, or one of each IP family.
func ParseClusters(text string) ([]netip.Prefix, error) {
	if text == "" {
		return nil, nil
	}
	var out []netip.Prefix
	for one := range strings.SplitSeq(text, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		if p != p.Masked() {
			return nil, fmt.Errorf("%s has bits beyond its length; did you mean %s?", p, p.Masked())
		}
		out = append(out, p)
	}
	if len(out) > 2 || len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		return nil, errors.New("must be one range, or one of IPv4 and one of IPv6")
	}
	return out, nil
}

// CheckBits returns an error if Nodes cannot get ranges of this length from the ranges of the cluster. Without a range,
// it is checked with the default one of IPv4, or the length of the default one of IPv6.
func CheckBits(clusters []netip.Prefix, is4 bool, bits int) error {
	length, most := siteBits, 128
	if is4 {
		length, most = cluster4.Bits(), 32
	}
	i := slices.IndexFunc(clusters, func(p netip.Prefix) bool { return p.Addr().Is4() == is4 })
	if i >= 0 {
		length = clusters[i].Bits()
	} else if len(clusters) > 0 {
		return nil
	}
	if bits < length || bits > most-2 || bits > length+maxNodeBits {
		return fmt.Errorf("must be from %d to %d for a cluster range of /%d, got %d", length,
			min(most-2, length+maxNodeBits), length, bits)
	}
	return nil
}
