package check

import (
	"errors"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
)

// tryLinks creates a bridge and a veth pair.
func tryLinks() error {
	named := func(name string) netlink.LinkAttrs {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		return attrs
	}
	pair := netlink.NewVeth(named("check1"))
	pair.PeerName = "check2"
	return errors.Join(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: named("check0")}), netlink.LinkAdd(pair))
}

// tryTable creates an nftables table with a NAT chain.
func tryTable() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "check"})
	chain := conn.AddChain(
		&nftables.Chain{Table: table, Name: "out", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting,
			Priority: nftables.ChainPriorityNATSource})
	conn.AddRule(
		&nftables.Rule{Table: table, Chain: chain,
			Exprs: []expr.Any{&expr.Ct{Register: 1, Key: expr.CtKeySTATE}, &expr.Masq{}}})
	return conn.Flush()
}
