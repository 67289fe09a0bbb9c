package rules

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"monopod/agent/network/nft"
)

// setUpServices rejects packets to Service addresses that nothing serves, which would
// otherwise leave by the default route. Programs that serve a Service translate its
// address before these rules apply. One transaction replaces all rules.
func (r Rules) setUpServices(taken []netip.Prefix, log *zap.Logger) error {
	return nft.Do(func(conn *nftables.Conn) error {
		// A separate table, so that translation works on kernels that cannot reject. Its family is inet, because
		// addresses of Services may be IPv6.
		table := &nftables.Table{Name: r.Table, Family: nftables.TableFamilyINet}
		nft.Remove(conn, table)
		if len(r.Services) == 0 {
			return conn.Flush()
		}
		conn.AddTable(table)
		reject := addReject(conn, table)
		forward := conn.AddChain(filter(table, "forward", nftables.ChainHookForward))
		output := conn.AddChain(filter(table, "output", nftables.ChainHookOutput))
		for _, p := range r.Services {
			add := func(chain *nftables.Chain, match []expr.Any) {
				conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: nft.Join(match, to(p), reject)})
			}
			add(forward, nft.Link(expr.MetaKeyIIFNAME, expr.CmpOpEq, r.Bridge))
			if !slices.ContainsFunc(taken, p.Overlaps) {
				add(output, nft.Link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, "lo"))
			} else { // for instance a VPN's, which the node must still reach
				log.Warn("a route of this machine overlaps the range of Services: "+
					"unserved addresses are rejected only for pods", zap.Stringer("range", p))
			}
		}
		return conn.Flush()
	})
}

func filter(table *nftables.Table, name string, hook *nftables.ChainHook) *nftables.Chain {
	return &nftables.Chain{
		Name: name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter,
	}
}

// addReject adds a chain that answers TCP with a reset and everything else with ICMP, and returns the jump to it.
func addReject(conn *nftables.Conn, table *nftables.Table) []expr.Any {
	chain := conn.AddChain(&nftables.Chain{Name: "reject", Table: table})
	for _, exprs := range [][]expr.Any{
		append(nft.L4Protocol(expr.CmpOpEq, unix.IPPROTO_TCP), &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}),
		{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}},
	} {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs})
	}
	return nft.Verdict(expr.VerdictJump, chain.Name)
}

// to matches packets to a range, in a table of both families.
func to(p netip.Prefix) []expr.Any {
	f := familyOf(p.Addr().Is4())
	return nft.Join(nft.Meta(expr.MetaKeyNFPROTO, expr.CmpOpEq, []byte{byte(f.Table)}), f.DestinationIn(p))
}
