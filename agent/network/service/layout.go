package service

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const (
	// version names an empty chain. Another layout of chains and rules needs another version, so that a new
	// process replaces the table of an old one.
	version = "layout-6"

	chainServices = "services-of"
	chainPorts    = "ports-of"
	chainInside   = "services-inside"
	chainInsides  = "ports-inside"
	chainUnserved = "unserved-of"
	chainClosed   = "closed-of"
	chainReject   = "reject"
	chainGuard    = "guard"
)

// before is the difference in priority by which our chains run before others of the same hook: connections to
// Services never reach host ports, for instance.
const before = 1

// maxClients bounds the kernel's memory for session affinity. Clients beyond it have none.
const maxClients = 65536

// layout makes the static part of the table of one family.
type layout struct {
	table  *nftables.Table
	family corev1.IPFamily
	bridge string // link of the pods; empty: not known
	kin    string // prefix of the names of such links of all instances on the machine; empty: there are no others
	size   uint32 // of an address
	source uint32 // offset of the source address in the packet; the destination follows it
	sets   map[string]*nftables.Set
}

func newLayout(cfg Config, family corev1.IPFamily) *layout {
	l := &layout{
		table: &nftables.Table{Name: cfg.Table, Family: nftables.TableFamilyIPv4}, family: family, bridge: cfg.Bridge, kin: cfg.Bridges, size: 4, source: 12,
		sets: map[string]*nftables.Set{},
	}
	address := nftables.TypeIPAddr
	if family == corev1.IPv6Protocol {
		l.table.Family, l.size, l.source, address = nftables.TableFamilyIPv6, 16, 8, nftables.TypeIP6Addr
	}
	to := nftables.MustConcatSetType(address, nftables.TypeInetService)
	none := nftables.SetDatatype{}
	number := []nftables.SetDatatype{nftables.TypeInetProto, nftables.TypeInetService}
	front := append([]nftables.SetDatatype{address}, number...)
	for prefix, key := range map[string][]nftables.SetDatatype{"": front, nodePrefix: number} {
		l.add(prefix+setServices, key, nftables.TypeVerdict)
		l.add(prefix+setInside, key, nftables.TypeVerdict)
		l.add(prefix+setEndpoints, append(slices.Clone(key), nftables.TypeMark), to)
		l.add(prefix+setSticky, append(slices.Clone(key), nftables.TypeMark), nftables.TypeVerdict)
		l.add(prefix+setUnserved, key, nftables.TypeVerdict)
	}
	l.add(setLoops, []nftables.SetDatatype{address, address}, none)
	l.add(setRemote, []nftables.SetDatatype{address}, none)
	l.add(setGuarded, front, none)
	l.add(setSources, append(slices.Clone(front), address), none).Interval = true
	l.add(setClosed, []nftables.SetDatatype{address}, none)
	clients := l.add(setAffinity, append([]nftables.SetDatatype{address}, front...), to)
	clients.Dynamic, clients.HasTimeout, clients.Size = true, true, maxClients
	return l
}

func (l *layout) add(name string, key []nftables.SetDatatype, value nftables.SetDatatype) *nftables.Set {
	set := &nftables.Set{
		Table: l.table, Name: name, ID: uint32(len(l.sets) + 1), // within the transaction
		KeyType: key[0], IsMap: value.Name != "", DataType: value, Concatenation: len(key) > 1,
	}
	if len(key) > 1 {
		set.KeyType = nftables.MustConcatSetType(key...)
	}
	l.sets[name] = set
	return set
}

// Registers are words. From the first one on they contain: client . address . protocol . port . endpoint . port, so
// that each key is a sequence of them: the key of loops begins with the client, that of services with the address, and
// those of the maps for the node with the protocol. The index of an endpoint uses the register of its address.
const firstWord = uint32(unix.NFT_REG32_00)

func (l *layout) client() uint32   { return firstWord }
func (l *layout) address() uint32  { return firstWord + l.size/4 }
func (l *layout) proto() uint32    { return firstWord + 2*l.size/4 }
func (l *layout) port() uint32     { return l.proto() + 1 }
func (l *layout) endpoint() uint32 { return l.proto() + 2 }
func (l *layout) target() uint32   { return l.endpoint() + l.size/4 }

// Create implements nft.Layout: the table with its sets, chains and rules.
func (l *layout) Create(conn *nftables.Conn) error {
	conn.AddTable(l.table)
	for _, name := range slices.Sorted(maps.Keys(l.sets)) {
		if err := conn.AddSet(l.sets[name], nil); err != nil {
			return err
		}
	}
	l.chain(conn, l.Stamp())
	l.translate(conn)
	l.masquerade(conn)
	l.refuse(conn)
	l.guard(conn)
	for n := range standing {
		l.pick(conn, picker{n: n + 1})
		l.pick(conn, picker{n: n + 1, node: true})
	}
	return nil
}

// Stamp implements nft.Layout.
func (l *layout) Stamp() string { return version + "-" + l.bridge }

// translate looks up the destination of new connections, and if it is the node itself, the port. For connections of
// pods and of the node, it first looks for endpoints that only they reach.
func (l *layout) translate(conn *nftables.Conn) {
	prerouting := l.base(conn, hook{"prerouting", nftables.ChainHookPrerouting}, nftables.ChainTypeNAT, *nftables.ChainPriorityNATDest-before)
	output := l.base(conn, hook{"output", nftables.ChainHookOutput}, nftables.ChainTypeNAT, *nftables.ChainPriorityNATDest-before)
	inside, _ := l.destinations(conn, chainInside, chainInsides, setInside)
	if l.bridge != "" {
		l.rule(conn, prerouting, link(expr.MetaKeyIIFNAME, expr.CmpOpEq, l.bridge), jump(inside))
	}
	l.rule(conn, output, jump(inside))
	lookup := l.lookup(conn, chainServices, chainPorts, setServices)
	lookup(prerouting, nil)
	lookup(output, nil)
}

// destinations creates the chains that apply the verdicts of a set to the destination: one for all destinations, and
// one for the ports of the node only.
func (l *layout) destinations(conn *nftables.Conn, services, ports, set string) (all, ofNode *nftables.Chain) {
	ofNode = l.chain(conn, ports)
	l.rule(conn, ofNode, l.notLoopback6(), toLocal(), l.number(), l.verdict(nodePrefix+set))
	all = l.chain(conn, services)
	l.rule(conn, all, l.destination(), l.number(), l.verdict(set))
	l.rule(conn, all, jump(ofNode))
	return all, ofNode
}

// lookup creates the chains that apply the verdicts of a set to the destination, and returns the function that adds a
// jump to them to a base chain, for the packets that match. Pods of another instance on the machine have other
// Services, perhaps at the same addresses: for them, the chains look up only the ports of the node.
func (l *layout) lookup(conn *nftables.Conn, services, ports, set string) func(base *nftables.Chain, match []expr.Any) {
	all, ofNode := l.destinations(conn, services, ports, set)
	return func(base *nftables.Chain, match []expr.Any) {
		if l.kin != "" {
			prefix := []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: firstWord}, &expr.Cmp{Register: firstWord, Data: []byte(l.kin)}}
			l.rule(conn, base, match, prefix, link(expr.MetaKeyIIFNAME, expr.CmpOpNeq, l.bridge), []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: ofNode.Name}})
		}
		l.rule(conn, base, match, jump(all))
	}
}

// masquerade hides clients from endpoints whose replies would otherwise not come back through this node: the client
// itself, and endpoints elsewhere. What stays on this node comes back anyway.
func (l *layout) masquerade(conn *nftables.Conn) {
	out := l.base(conn, hook{"postrouting", nftables.ChainHookPostrouting}, nftables.ChainTypeNAT, *nftables.ChainPriorityNATSource-before)
	l.rule(conn, out, translated(), link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, "lo"), l.origin(), l.destination(), l.contains(setLoops, l.client()), masquerade())
	l.rule(conn, out, translated(), link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, "lo"), l.destination(), l.contains(setRemote, l.address()), masquerade())
	if l.family == corev1.IPv4Protocol && l.bridge != "" { // from the node through 127.0.0.1
		l.rule(conn, out, translated(), link(expr.MetaKeyOIFNAME, expr.CmpOpEq, l.bridge), loopback(l.origin(), l.client()), masquerade())
	}
}

// refuse answers connections to Services without endpoints, and keeps packets for 127.0.0.1 from entering through
// the pods' link: connections of the node to its own NodePorts need route_localnet, which lets them leave through that
// link.
func (l *layout) refuse(conn *nftables.Conn) {
	reject := l.chain(conn, chainReject)
	l.rule(conn, reject, []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: l.proto()},
		&expr.Cmp{Op: expr.CmpOpEq, Register: l.proto(), Data: []byte{unix.IPPROTO_TCP}},
		&expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
	})
	code := byte(3) // port unreachable, of ICMP
	if l.family == corev1.IPv6Protocol {
		code = 4
	}
	l.rule(conn, reject, []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}})

	lookup := l.lookup(conn, chainUnserved, chainClosed, setUnserved)
	for _, at := range []hook{
		{"filter-input", nftables.ChainHookInput}, {"filter-forward", nftables.ChainHookForward}, {"filter-output", nftables.ChainHookOutput},
	} {
		lookup(l.base(conn, at, nftables.ChainTypeFilter, *nftables.ChainPriorityFilter-before), fresh())
	}
	l.rule(conn, &nftables.Chain{Name: "filter-input"}, fresh(), l.notPing(), l.destination(), l.contains(setClosed, l.address()),
		[]expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: reject.Name}})
	if l.family == corev1.IPv4Protocol && l.bridge != "" {
		at := hook{"raw-prerouting", nftables.ChainHookPrerouting}
		l.rule(conn, l.base(conn, at, nftables.ChainTypeFilter, *nftables.ChainPriorityRaw), link(expr.MetaKeyIIFNAME, expr.CmpOpEq, l.bridge), loopback(l.destination(), l.address()),
			[]expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
	}
}

// guard drops the first packet of a connection to a load balancer from a client that is not in its ranges, before its
// destination is translated.
func (l *layout) guard(conn *nftables.Conn) {
	guard := l.chain(conn, chainGuard)
	from := l.load(l.endpoint(), l.source)
	l.rule(conn, guard, l.destination(), l.number(), l.contains(setGuarded, l.address()), from,
		[]expr.Any{&expr.Lookup{SourceRegister: l.address(), SetName: setSources, SetID: l.sets[setSources].ID, Invert: true}},
		[]expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
	for _, at := range []hook{{"guard-prerouting", nftables.ChainHookPrerouting}, {"guard-output", nftables.ChainHookOutput}} {
		l.rule(conn, l.base(conn, at, nftables.ChainTypeFilter, *nftables.ChainPriorityNATDest-2*before), fresh(), jump(guard))
	}
}

// notPing matches other protocols than ICMP.
func (l *layout) notPing() []expr.Any {
	icmp := byte(unix.IPPROTO_ICMP)
	if l.family == corev1.IPv6Protocol {
		icmp = unix.IPPROTO_ICMPV6
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: l.proto()},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: l.proto(), Data: []byte{icmp}},
	}
}

// pick adds the chain of a picker.
//
// With session affinity, a random endpoint's chain first assigns the client to that endpoint. This changes nothing for
// a client that has one, except that the time of its affinity begins again.
func (l *layout) pick(conn *nftables.Conn, p picker) {
	chain := l.chain(conn, p.chain())
	if p.n == 0 {
		l.assign(conn, chain, p)
		return
	}
	numbers := &expr.Numgen{Register: l.endpoint(), Modulus: uint32(p.n), Type: unix.NFT_NG_RANDOM}
	if p.inside {
		numbers.Offset = insideFrom
	}
	random := []expr.Any{numbers}
	key, prefix, first := join(l.destination(), l.number(), random), "", l.address()
	if p.node {
		key, prefix, first = join(l.number(), random), nodePrefix, l.proto()
	}
	if p.affinity > 0 {
		l.rule(conn, chain, key, l.find(prefix+setSticky, first, unix.NFT_REG_VERDICT))
		l.rule(conn, chain, l.origin(), l.destination(), l.number(), l.find(setAffinity, l.client(), l.endpoint()), l.dnat())
	}
	l.rule(conn, chain, key, l.find(prefix+setEndpoints, first, l.endpoint()), l.dnat())
}

func (l *layout) assign(conn *nftables.Conn, chain *nftables.Chain, p picker) {
	set := l.sets[setAffinity]
	l.rule(conn, chain, l.origin(), l.destination(), l.number(), []expr.Any{
		&expr.Immediate{Register: l.endpoint(), Data: p.to.Addr().AsSlice()},
		&expr.Immediate{Register: l.target(), Data: []byte(port(p.to.Port()))[:2]},
		&expr.Dynset{
			SrcRegKey: l.client(), SrcRegData: l.endpoint(), SetName: set.Name, SetID: set.ID, Operation: uint32(unix.NFT_DYNSET_OP_UPDATE), Timeout: p.affinity,
		},
	})
}

func (l *layout) chain(conn *nftables.Conn, name string) *nftables.Chain {
	return conn.AddChain(&nftables.Chain{Name: name, Table: l.table})
}

// hook is where a base chain begins.
type hook struct {
	chain string
	at    *nftables.ChainHook
}

func (l *layout) base(conn *nftables.Conn, h hook, typ nftables.ChainType, priority nftables.ChainPriority) *nftables.Chain {
	return conn.AddChain(&nftables.Chain{Name: h.chain, Table: l.table, Type: typ, Hooknum: h.at, Priority: &priority})
}

func (l *layout) rule(conn *nftables.Conn, chain *nftables.Chain, exprs ...[]expr.Any) {
	conn.AddRule(&nftables.Rule{Table: l.table, Chain: chain, Exprs: join(exprs...)})
}

// origin, destination and number load the packet's addresses, and its protocol and port.
func (l *layout) origin() []expr.Any { return l.load(l.client(), l.source) }

func (l *layout) destination() []expr.Any { return l.load(l.address(), l.source+l.size) }

func (l *layout) number() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: l.proto()},
		&expr.Payload{DestRegister: l.port(), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

// load loads an address of the network header.
func (l *layout) load(register, offset uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: l.size}}
}

// contains continues the rule if the set contains the key.
func (l *layout) contains(set string, key uint32) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: key, SetName: set, SetID: l.sets[set].ID}}
}

// find loads the key's value, and continues the rule if there is one.
func (l *layout) find(set string, key, value uint32) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: key, DestRegister: value, IsDestRegSet: true, SetName: set, SetID: l.sets[set].ID}}
}

// verdict executes the verdict of the element of the destination.
func (l *layout) verdict(set string) []expr.Any {
	if strings.HasPrefix(set, nodePrefix) {
		return l.find(set, l.proto(), unix.NFT_REG_VERDICT)
	}
	return l.find(set, l.address(), unix.NFT_REG_VERDICT)
}

func (l *layout) dnat() []expr.Any {
	return []expr.Any{&expr.NAT{
		Type: expr.NATTypeDestNAT, Family: uint32(l.table.Family), RegAddrMin: l.endpoint(), RegProtoMin: l.target(), Specified: true,
	}}
}

// notLoopback6 excludes ::1, at which NodePorts refuse connections, as upstream: the kernel does not let packets from
// there leave by a link, unlike those from 127.0.0.1.
func (l *layout) notLoopback6() []expr.Any {
	if l.family != corev1.IPv6Protocol {
		return nil
	}
	return append(l.destination(), &expr.Cmp{Op: expr.CmpOpNeq, Register: l.address(), Data: netip.IPv6Loopback().AsSlice()})
}

// loopback matches an address of 127.0.0.0/8, which load loads into the register.
func loopback(load []expr.Any, register uint32) []expr.Any {
	return join(load, []expr.Any{
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: []byte{255, 0, 0, 0}, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{127, 0, 0, 0}},
	})
}

func jump(chain *nftables.Chain) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain.Name}}
}

func masquerade() []expr.Any { return []expr.Any{&expr.Masq{FullyRandom: true}} }

// toLocal matches packets for an address of this machine (RTN_LOCAL).
func toLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: firstWord, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: firstWord, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// translated matches connections whose destination was translated (IPS_DST_NAT).
func translated() []expr.Any { return bits(expr.CtKeySTATUS, 1<<5) }

// fresh matches the first packet of a connection.
func fresh() []expr.Any { return bits(expr.CtKeySTATE, expr.CtStateBitNEW) }

func bits(key expr.CtKey, mask uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: firstWord},
		&expr.Bitwise{SourceRegister: firstWord, DestRegister: firstWord, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: firstWord, Data: make([]byte, 4)},
	}
}

// link matches the input or output link by name.
func link(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{&expr.Meta{Key: key, Register: firstWord}, &expr.Cmp{Op: op, Register: firstWord, Data: padded}}
}

func join(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }
