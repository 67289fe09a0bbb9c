package cni

import (
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// services is a separate table, so that translation works on kernels that cannot
// reject. Its family is inet, because addresses of Services may be IPv6.
func (n Network) services() *nftables.Table {
	return &nftables.Table{Name: n.Table, Family: nftables.TableFamilyINet}
}

// setUpServices rejects packets to Service addresses that nothing serves, which would
// otherwise leave by the default route. Programs that serve a Service translate its
// address before these rules apply. One transaction replaces all rules.
func (n Network) setUpServices(log *zap.Logger) error {
	taken, err := takenSubnets(n.Bridge)
	if err != nil {
		return err
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table := n.services()
	remove(conn, table)
	if len(n.Services) == 0 {
		return conn.Flush()
	}
	conn.AddTable(table)
	reject := addReject(conn, table)
	forward := conn.AddChain(filter(table, "forward", nftables.ChainHookForward))
	output := conn.AddChain(filter(table, "output", nftables.ChainHookOutput))
	for _, p := range n.Services {
		add := func(chain *nftables.Chain, match []expr.Any) {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(join(match, to(p)), reject)})
		}
		add(forward, through(expr.MetaKeyIIFNAME, expr.CmpOpEq, n.Bridge))
		if free(p, taken) {
			add(output, through(expr.MetaKeyOIFNAME, expr.CmpOpNeq, "lo"))
		} else { // for instance a VPN's, which the node must still reach
			log.Warn("a route of this machine overlaps the range of Services: unserved addresses are rejected only for pods", zap.Stringer("range", p))
		}
	}
	return conn.Flush()
}

// remove removes a table that may not exist.
func remove(conn *nftables.Conn, table *nftables.Table) {
	conn.AddTable(table)
	conn.DelTable(table)
}

func filter(table *nftables.Table, name string, hook *nftables.ChainHook) *nftables.Chain {
	return &nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter}
}

// addReject adds a chain that answers TCP with a reset and everything else with ICMP,
// and returns the jump to it.
func addReject(conn *nftables.Conn, table *nftables.Table) *expr.Verdict {
	chain := conn.AddChain(&nftables.Chain{Name: "reject", Table: table})
	for _, exprs := range [][]expr.Any{
		{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: word0},
			&expr.Cmp{Op: expr.CmpOpEq, Register: word0, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
		},
		{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}},
	} {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs})
	}
	return &expr.Verdict{Kind: expr.VerdictJump, Chain: chain.Name}
}

// to matches packets for p, in a table of both families.
func to(p netip.Prefix) []expr.Any {
	family, offset := byte(unix.NFPROTO_IPV4), uint32(16)
	if p.Addr().Is6() {
		family, offset = unix.NFPROTO_IPV6, 24
	}
	return append([]expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: word0},
		&expr.Cmp{Op: expr.CmpOpEq, Register: word0, Data: []byte{family}},
	}, within(p, offset)...)
}

// within matches an address at the offset of the network header.
func within(p netip.Prefix, offset uint32) []expr.Any {
	bits := p.Addr().BitLen()
	size := uint32(bits / 8)
	return []expr.Any{
		&expr.Payload{DestRegister: word0, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: word0, DestRegister: word0, Len: size, Mask: net.CIDRMask(p.Bits(), bits), Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: word0, Data: p.Addr().AsSlice()},
	}
}

// through matches the input or output link of a packet by name.
func through(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{
		&expr.Meta{Key: key, Register: word0},
		&expr.Cmp{Op: op, Register: word0, Data: padded},
	}
}

// withoutPods returns the ranges of Services that contain no pod address.
func withoutPods(subnet netip.Prefix, services []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(services), subnet.Overlaps)
}
