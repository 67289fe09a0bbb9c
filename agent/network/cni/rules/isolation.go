// Only packets that the node routes pass the hooks of an IP family, where Services are translated and
// NetworkPolicies apply, in both directions, and whether br_netfilter is loaded or not. Pods have no route to each
// other but through the node; the rules here are for programs in pods that send frames of their own, and for
// redirects, by which the node would announce a shorter route to pods. The bridge's own option for ports (isolated)
// cannot be used: with br_netfilter, the bridge forwards a packet whose destination was translated to another pod
// by itself, after all hooks of the IP family, and such ports would drop it.

package rules

import (
	"hash/fnv"
	"net"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod/agent/network/nft"
	"monopod/agent/network/retry"
)

// before is a priority before that of br_netfilter, which is 0: the rules see the destination with which a frame
// arrived.
const before = -300

const isolationWord = unix.NFT_REG32_00

// SetUp replaces the table, of the family bridge, in one transaction. Pods are at the ports that are in the Group.
// Ports of a version that had no groups are added to it: the host answers their neighbor solicitations for each other.
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
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+bridge.Attrs().Name+"/proxy_arp_pvlan", []byte("1"),
		0o644); err != nil {
		return err
	}
	return nft.Do(func(conn *nftables.Conn) error { return replace(conn, name, bridge) })
}

func replace(conn *nftables.Conn, name string, bridge netlink.Link) error {
	table := &nftables.Table{Name: name, Family: nftables.TableFamilyBridge}
	nft.Remove(conn, table)
	conn.AddTable(table)
	pods, gateway := Group(bridge.Attrs().Name), bridge.Attrs().HardwareAddr
	drop := verdict(expr.VerdictDrop)
	for _, c := range []struct {
		name  string
		hook  *nftables.ChainHook
		rules [][]expr.Any
	}{
		// Pods send to the node, and resolve its link address.
		{"prerouting", nftables.ChainHookPrerouting, [][]expr.Any{
			joinBridge(in(expr.CmpOpNeq, pods), verdict(expr.VerdictAccept)),
			joinBridge(begins(expr.PayloadBaseLLHeader, gateway), verdict(expr.VerdictAccept)),
			joinBridge(protocol(unix.ETH_P_ARP), begins(expr.PayloadBaseLLHeader,
				net.HardwareAddr{255, 255, 255, 255, 255, 255}), verdict(expr.VerdictAccept)),
			joinBridge(protocol(unix.ETH_P_IPV6), begins(expr.PayloadBaseLLHeader, []byte{0x33, 0x33}), l4(unix.IPPROTO_ICMPV6),
				neighbor(), verdict(expr.VerdictAccept)),
			drop,
		}},
		// Only the node receives such requests.
		{"forward", nftables.ChainHookForward, [][]expr.Any{
			joinBridge(in(expr.CmpOpEq, pods), kind(unix.PACKET_BROADCAST), drop),
			joinBridge(in(expr.CmpOpEq, pods), kind(unix.PACKET_MULTICAST), drop),
		}},
		{"output", nftables.ChainHookOutput, [][]expr.Any{
			joinBridge(out(expr.CmpOpEq, pods), protocol(unix.ETH_P_IP), l4(unix.IPPROTO_ICMP),
				begins(expr.PayloadBaseTransportHeader, []byte{5}), drop),
			joinBridge(out(expr.CmpOpEq, pods), protocol(unix.ETH_P_IPV6), l4(unix.IPPROTO_ICMPV6),
				begins(expr.PayloadBaseTransportHeader, []byte{137}), drop),
		}},
	} {
		chain := conn.AddChain(&nftables.Chain{
			Name: c.name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: c.hook, Priority: nftables.ChainPriorityRef(before),
		})
		for _, exprs := range c.rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs})
		}
	}
	return conn.Flush()
}

func joinBridge(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }

// Group is the group of the links that are ports of the bridge, by which rules know them: matching a port's bridge
// needs a part of the kernel that some lack.
func Group(bridge string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(bridge))
	return h.Sum32() | 1<<31 // far from the small numbers that people use
}

// in and out match frames that come from the group's links, or leave through them.
func in(op expr.CmpOp, group uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFGROUP, Register: isolationWord}, &expr.Cmp{Op: op, Register: isolationWord, Data: binaryutil.NativeEndian.PutUint32(group)}}
}

func out(op expr.CmpOp, group uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyOIFGROUP, Register: isolationWord}, &expr.Cmp{Op: op, Register: isolationWord, Data: binaryutil.NativeEndian.PutUint32(group)}}
}

// begins matches the first bytes of a header.
func begins(base expr.PayloadBase, data []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: isolationWord, Base: base, Len: uint32(len(data))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: isolationWord, Data: data},
	}
}

// protocol matches the Ethernet type.
func protocol(number uint16) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: isolationWord}, &expr.Cmp{Op: expr.CmpOpEq, Register: isolationWord, Data: binaryutil.BigEndian.PutUint16(number)}}
}

// l4 matches the protocol above IP.
func l4(number byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: isolationWord}, &expr.Cmp{Op: expr.CmpOpEq, Register: isolationWord, Data: []byte{number}}}
}

// neighbor matches the ICMPv6 types of router and neighbor discovery, redirects excepted: 133 to 136.
func neighbor() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: isolationWord, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		&expr.Range{Op: expr.CmpOpEq, Register: isolationWord, FromData: []byte{133}, ToData: []byte{136}},
	}
}

// kind matches frames for all links, or for many.
func kind(packet byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyPKTTYPE, Register: isolationWord}, &expr.Cmp{Op: expr.CmpOpEq, Register: isolationWord, Data: []byte{packet}}}
}
