package rules

import (
	"errors"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"monopod/agent/network/nft"
)

// nat is the table of a family and its contents.
type nat struct {
	family
	table                           *nftables.Table
	prerouting, output, postrouting *nftables.Chain
	ports                           *nftables.Set
	loops                           *nftables.Set
}

func (r Rules) nat(f family) nat {
	table := &nftables.Table{Name: r.Table, Family: f.table}
	chain := func(name string, hook *nftables.ChainHook, prio *nftables.ChainPriority) *nftables.Chain {
		return &nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: prio}
	}
	return nat{
		family:      f,
		table:       table,
		prerouting:  chain("prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest),
		output:      chain("output", nftables.ChainHookOutput, nftables.ChainPriorityNATDest),
		postrouting: chain("postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource),
		// host address (zero: all) . protocol . port -> pod address . port
		ports: &nftables.Set{
			Table: table, Name: portMap, IsMap: true, Concatenation: true,
			ID:       1, // within the transaction; the library would use a global counter
			KeyType:  nftables.MustConcatSetType(f.address, nftables.TypeInetProto, nftables.TypeInetService),
			DataType: nftables.MustConcatSetType(f.address, nftables.TypeInetService),
		},
		// pod address . pod address, of the pods that have host ports
		loops: &nftables.Set{Table: table, Name: "loops", ID: 2, Concatenation: true,
			KeyType: nftables.MustConcatSetType(f.address, f.address)},
	}
}

// setUpNAT writes the static rules of a family in one transaction. Ports in the map
// are kept.
func (r Rules) setUpNAT(subnet netip.Prefix) error {
	return nft.Do(func(conn *nftables.Conn) error { return r.addNAT(conn, subnet) })
}

func (r Rules) addNAT(conn *nftables.Conn, subnet netip.Prefix) error {
	t := r.nat(familyOf(subnet.Addr()))
	conn.AddTable(t.table)
	if err := errors.Join(conn.AddSet(t.ports, nil), conn.AddSet(t.loops, nil)); err != nil {
		return err
	}
	for _, chain := range []*nftables.Chain{t.prerouting, t.output, t.postrouting} {
		conn.AddChain(chain)
		conn.FlushChain(chain)
	}
	for _, chain := range []*nftables.Chain{t.prerouting, t.output} {
		for _, ip := range [][]expr.Any{t.destination(), {&expr.Immediate{Register: word0, Data: make([]byte, t.size)}}} {
			conn.AddRule(
				&nftables.Rule{Table: t.table, Chain: chain, Exprs: join(t.notLoopback(), toLocal(), ip, t.lookupPort())})
		}
	}
	out := func(op expr.CmpOp) []expr.Any { return through(expr.MetaKeyOIFNAME, op, r.Bridge) }
	for _, match := range [][]expr.Any{
		// From pods to other networks.
		join(t.from(subnet), out(expr.CmpOpNeq)),
		// From a pod through a host port back to itself, because replies would
		// otherwise not leave it, and from the host's own loopback address. Other
		// pods keep their addresses: they have no route to each other but this host.
		join(translated(), t.looped()),
		join(t.from(t.loopback), out(expr.CmpOpEq)),
	} {
		conn.AddRule(&nftables.Rule{Table: t.table, Chain: t.postrouting, Exprs: append(match, &expr.Masq{})})
	}
	return conn.Flush()
}

// looped matches packets of a pod with host ports to itself.
func (t nat) looped() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: word0, Base: expr.PayloadBaseNetworkHeader, Offset: t.source, Len: t.size},
		&expr.Payload{DestRegister: t.after(), Base: expr.PayloadBaseNetworkHeader, Offset: t.source + t.size, Len: t.size},
		&expr.Lookup{SourceRegister: word0, SetName: t.loops.Name, SetID: t.loops.ID},
	}
}

// routeLocal is RTN_LOCAL of linux/rtnetlink.h: an address of this host.
const routeLocal = 2

func toLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: word0, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: word0, Data: binaryutil.NativeEndian.PutUint32(routeLocal)},
	}
}

// notLoopback excludes ::1, at which host ports refuse connections: the kernel does not let packets from there leave by
// a link, unlike those from 127.0.0.1.
func (t nat) notLoopback() []expr.Any {
	if t.family.size != ipv6.size {
		return nil
	}
	return append(t.destination(), &expr.Cmp{Op: expr.CmpOpNeq, Register: word0, Data: t.loopback.Addr().AsSlice()})
}

// lookupPort completes the key after the address, and translates if the map contains
// it.
func (t nat) lookupPort() []expr.Any {
	proto := t.after()
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: proto},
		&expr.Payload{DestRegister: proto + 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: word0, DestRegister: word0, IsDestRegSet: true, SetName: t.ports.Name,
			SetID: t.ports.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(t.proto), RegAddrMin: word0, RegProtoMin: t.after()},
	}
}

// translated matches connections that a host port has translated (IPS_DST_NAT).
func translated() []expr.Any {
	const dstNAT = 1 << 5
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: word0},
		&expr.Bitwise{
			SourceRegister: word0, DestRegister: word0, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(dstNAT), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: word0, Data: make([]byte, 4)},
	}
}
