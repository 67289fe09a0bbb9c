package rules

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"monopod/agent/network/nft"
)

// nat contains the table of a family that translates addresses, and its chains and sets.
type nat struct {
	nft.Family
	table                           *nftables.Table
	prerouting, output, postrouting *nftables.Chain
	nodes                           *nftables.Chain // accepts connections to the pods of other nodes
	ports                           *nftables.Set
	loops                           *nftables.Set
}

func (r Rules) nat(f nft.Family) nat {
	table := &nftables.Table{Name: r.Table, Family: f.Table}
	chain := func(name string, hook *nftables.ChainHook, prio *nftables.ChainPriority) *nftables.Chain {
		return &nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: prio}
	}
	return nat{
		Family:      f,
		table:       table,
		prerouting:  chain("prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest),
		output:      chain("output", nftables.ChainHookOutput, nftables.ChainPriorityNATDest),
		postrouting: chain("postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource),
		nodes:       &nftables.Chain{Name: "nodes", Table: table},
		// host address (zero: all) . protocol . port -> pod address . port
		ports: nft.NewSet(table, "hostports", 1,
			[]nftables.SetDatatype{f.Address, nftables.TypeInetProto, nftables.TypeInetService},
			nftables.MustConcatSetType(f.Address, nftables.TypeInetService)),
		// pod address . pod address, of the pods that have host ports
		loops: nft.NewSet(table, "loops", 2, []nftables.SetDatatype{f.Address, f.Address}, nftables.SetDatatype{}),
	}
}

// setUpNAT writes the static rules of a family in one transaction. It keeps the ports in the map.
func (r Rules) setUpNAT(subnet netip.Prefix) error {
	return nft.Do(func(conn *nftables.Conn) error { return r.addNAT(conn, subnet) })
}

func (r Rules) addNAT(conn *nftables.Conn, subnet netip.Prefix) error {
	t := r.nat(familyOf(subnet.Addr().Is4()))
	conn.AddTable(t.table)
	if err := errors.Join(conn.AddSet(t.ports, nil), conn.AddSet(t.loops, nil)); err != nil {
		return err
	}
	for _, chain := range []*nftables.Chain{t.prerouting, t.output, t.postrouting, t.nodes} {
		conn.AddChain(chain)
		conn.FlushChain(chain)
	}
	for _, p := range r.Nodes {
		if p.Addr().Is4() == subnet.Addr().Is4() {
			conn.AddRule(&nftables.Rule{Table: t.table, Chain: t.nodes,
				Exprs: append(t.DestinationIn(p), nft.Verdict(expr.VerdictAccept, "")...)})
		}
	}
	toOthers := nft.Join(t.SourceIn(subnet), nft.Link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, r.Bridge))
	conn.AddRule(&nftables.Rule{Table: t.table, Chain: t.postrouting,
		Exprs: append(slices.Clone(toOthers), nft.Verdict(expr.VerdictJump, t.nodes.Name)...)})
	everyAddress := []expr.Any{&expr.Immediate{Register: t.Destination(), Data: make([]byte, t.Size)}}
	dnat := []expr.Any{&expr.NAT{
		Type: expr.NATTypeDestNAT, Family: uint32(t.Table), RegAddrMin: t.Source(), RegProtoMin: t.Destination(),
	}}
	for _, chain := range []*nftables.Chain{t.prerouting, t.output} {
		for _, host := range [][]expr.Any{t.LoadDestination(), everyAddress} {
			conn.AddRule(&nftables.Rule{Table: t.table, Chain: chain, Exprs: nft.Join(t.NotToLoopback6(), nft.ToLocal(),
				host, t.LoadPort(), nft.Find(t.ports, t.Destination(), t.Source()), dnat)})
		}
	}
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	if subnet.Addr().Is6() {
		loopback = netip.MustParsePrefix("::1/128")
	}
	for _, match := range [][]expr.Any{
		toOthers, // from pods to other networks
		// From a pod through a host port back to itself, because replies would otherwise not leave it. Other pods keep
		// their addresses: they have no route to each other but this host.
		nft.Join(nft.Translated(), t.LoadSource(), t.LoadDestination(), nft.Contains(t.loops, t.Source())),
		// From the host's own loopback address.
		nft.Join(t.SourceIn(loopback), nft.Link(expr.MetaKeyOIFNAME, expr.CmpOpEq, r.Bridge)),
	} {
		conn.AddRule(&nftables.Rule{Table: t.table, Chain: t.postrouting, Exprs: append(match, &expr.Masq{})})
	}
	return conn.Flush()
}
