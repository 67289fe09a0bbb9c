// Only packets that the node routes pass the hooks of an IP family, where Services are translated and
// NetworkPolicies apply, in both directions, and whether br_netfilter is loaded or not. Pods have no route to each
// other but through the node; the rules here are for programs in pods that send frames of their own, and for
// redirects, by which the node would announce a shorter route to pods. The bridge's own option for ports (isolated)
// cannot be used: with br_netfilter, the bridge forwards a packet whose destination was translated to another pod
// by itself, after all hooks of the IP family, and such ports would drop it.

package rules

import (
	"hash/fnv"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod/agent/network/nft"
	"monopod/agent/network/retry"
)

// beforeBrNetfilter is a priority before that of br_netfilter, which is 0: the rules see the destination before it is
// translated.
const beforeBrNetfilter = -300

// SetUp replaces the table, of the family bridge, in one transaction. It adds the ports of pods that an earlier version
// connected to the Group. The host answers the ARP requests of pods for each other.
func SetUp(name string, bridge netlink.Link) error {
	links, err := retry.All(netlink.LinkList)
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Attrs().MasterIndex != bridge.Attrs().Index || l.Attrs().Group == Group(bridge.Attrs().Name) {
			continue
		}
		if err := netlink.LinkSetGroup(l, int(Group(bridge.Attrs().Name))); err != nil {
			return err
		}
	}
	proxyARP := "/proc/sys/net/ipv4/conf/" + bridge.Attrs().Name + "/proxy_arp_pvlan"
	if err := os.WriteFile(proxyARP, []byte("1"), 0o644); err != nil {
		return err
	}
	return nft.Do(func(conn *nftables.Conn) error { return replace(conn, name, bridge) })
}

func replace(conn *nftables.Conn, name string, bridge netlink.Link) error {
	table := &nftables.Table{Name: name, Family: nftables.TableFamilyBridge}
	nft.Remove(conn, table)
	conn.AddTable(table)
	pods, gateway := Group(bridge.Attrs().Name), bridge.Attrs().HardwareAddr
	const redirect4, redirect6 = 5, 137
	broadcast := []byte{255, 255, 255, 255, 255, 255}
	accept, drop := nft.Verdict(expr.VerdictAccept, ""), nft.Verdict(expr.VerdictDrop, "")
	destination, icmp := expr.PayloadBaseLLHeader, expr.PayloadBaseTransportHeader
	for _, c := range []struct {
		name  string
		hook  *nftables.ChainHook
		rules [][]expr.Any
	}{
		// Pods send to the node, and resolve its link address.
		{"prerouting", nftables.ChainHookPrerouting, [][]expr.Any{
			nft.Join(fromGroup(expr.CmpOpNeq, pods), accept),
			nft.Join(startsWith(destination, gateway...), accept),
			nft.Join(etherType(unix.ETH_P_ARP), startsWith(destination, broadcast...), accept),
			nft.Join(etherType(unix.ETH_P_IPV6), startsWith(destination, 0x33, 0x33),
				nft.L4Protocol(expr.CmpOpEq, unix.IPPROTO_ICMPV6), neighborDiscovery(), accept),
			drop,
		}},
		// Only the node receives such requests.
		{"forward", nftables.ChainHookForward, [][]expr.Any{
			nft.Join(fromGroup(expr.CmpOpEq, pods), packetType(unix.PACKET_BROADCAST), drop),
			nft.Join(fromGroup(expr.CmpOpEq, pods), packetType(unix.PACKET_MULTICAST), drop),
		}},
		{"output", nftables.ChainHookOutput, [][]expr.Any{
			nft.Join(toGroup(pods), etherType(unix.ETH_P_IP), nft.L4Protocol(expr.CmpOpEq, unix.IPPROTO_ICMP),
				startsWith(icmp, redirect4), drop),
			nft.Join(toGroup(pods), etherType(unix.ETH_P_IPV6), nft.L4Protocol(expr.CmpOpEq, unix.IPPROTO_ICMPV6),
				startsWith(icmp, redirect6), drop),
		}},
	} {
		chain := conn.AddChain(&nftables.Chain{
			Name: c.name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: c.hook,
			Priority: nftables.ChainPriorityRef(beforeBrNetfilter),
		})
		for _, exprs := range c.rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs})
		}
	}
	return conn.Flush()
}

// Group is the group of the links that are ports of the bridge. Rules match it, because some kernels lack the part that
// matches a port's bridge.
func Group(bridge string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(bridge))
	return h.Sum32() | 1<<31 // far from the small numbers that people use
}

// fromGroup and toGroup match frames that come from the group's links, or leave through them.
func fromGroup(op expr.CmpOp, group uint32) []expr.Any {
	return nft.Meta(expr.MetaKeyIIFGROUP, op, binaryutil.NativeEndian.PutUint32(group))
}

func toGroup(group uint32) []expr.Any {
	return nft.Meta(expr.MetaKeyOIFGROUP, expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(group))
}

// etherType matches the protocol in the Ethernet header.
func etherType(number uint16) []expr.Any {
	return nft.Meta(expr.MetaKeyPROTOCOL, expr.CmpOpEq, binaryutil.BigEndian.PutUint16(number))
}

// packetType matches frames by their destination: one link, many or all.
func packetType(kind byte) []expr.Any {
	return nft.Meta(expr.MetaKeyPKTTYPE, expr.CmpOpEq, []byte{kind})
}

// startsWith matches the first bytes of a header.
func startsWith(base expr.PayloadBase, data ...byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: nft.FirstRegister, Base: base, Len: uint32(len(data))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: nft.FirstRegister, Data: data},
	}
}

// neighborDiscovery matches the ICMPv6 types of router and neighbor discovery, redirects excepted: 133 to 136.
func neighborDiscovery() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: nft.FirstRegister, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		&expr.Range{Op: expr.CmpOpEq, Register: nft.FirstRegister, FromData: []byte{133}, ToData: []byte{136}},
	}
}
