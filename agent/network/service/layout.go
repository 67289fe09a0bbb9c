package service

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/network/nft"
)

const (
	// version names an empty chain. Another layout of chains and rules needs another version, so that a new
	// process replaces the table of an old one.
	version = "layout-7"

	chainServices = "services-of"
	chainPorts    = "ports-of"
	chainInside   = "services-inside"
	chainInsides  = "ports-inside"
	chainUnserved = "unserved-of"
	chainClosed   = "closed-of"
	chainReject   = "reject"
	chainGuard    = "guard"
)

// priorityStep is the difference in priority by which these chains run before others of the same hook: connections to
// Services never reach host ports, for instance.
const priorityStep = 1

// maxClients bounds the kernel's memory for session affinity. Clients beyond it have none.
const maxClients = 65536

var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

// layout creates the static part of the table of one family.
//
// After the registers of nft.Family (source, destination, protocol, port) two more contain the address and port of an
// endpoint. The key of loops begins with the source, that of services with the destination, and those of the maps for
// the node with the protocol. The index of an endpoint uses the register of its address.
type layout struct {
	nft.Family
	table   *nftables.Table
	bridge  string       // link of the pods; empty: not known
	bridges string       // prefix of the names of such links of all instances on the machine; empty: there are no others
	pods    netip.Prefix // addresses of the node's pods; invalid: not known
	sets    map[string]*nftables.Set
}

func newLayout(cfg Config, family corev1.IPFamily) *layout {
	l := &layout{
		Family: nft.FamilyOf(family), bridge: cfg.Bridge, bridges: cfg.Bridges, sets: map[string]*nftables.Set{},
	}
	if i := slices.IndexFunc(cfg.Pods, func(p netip.Prefix) bool { return familyOf(p.Addr()) == family }); i >= 0 {
		l.pods = cfg.Pods[i]
	}
	l.table = &nftables.Table{Name: cfg.Table, Family: l.Family.Table}
	to := nftables.MustConcatSetType(l.Address, nftables.TypeInetService)
	none := nftables.SetDatatype{}
	ports := []nftables.SetDatatype{nftables.TypeInetProto, nftables.TypeInetService}
	frontend := append([]nftables.SetDatatype{l.Address}, ports...)
	for prefix, key := range map[string][]nftables.SetDatatype{"": frontend, nodePrefix: ports} {
		l.addSet(prefix+setServices, key, nftables.TypeVerdict)
		l.addSet(prefix+setInside, key, nftables.TypeVerdict)
		l.addSet(prefix+setEndpoints, append(slices.Clone(key), nftables.TypeMark), to)
		l.addSet(prefix+setSticky, append(slices.Clone(key), nftables.TypeMark), nftables.TypeVerdict)
		l.addSet(prefix+setUnserved, key, nftables.TypeVerdict)
	}
	l.addSet(setLoops, []nftables.SetDatatype{l.Address, l.Address}, none)
	l.addSet(setRemote, []nftables.SetDatatype{l.Address}, none)
	l.addSet(setGuarded, frontend, none)
	l.addSet(setSources, append(slices.Clone(frontend), l.Address), none).Interval = true
	l.addSet(setClosed, []nftables.SetDatatype{l.Address}, none)
	clients := l.addSet(setAffinity, append([]nftables.SetDatatype{l.Address}, frontend...), to)
	clients.Dynamic, clients.HasTimeout, clients.Size = true, true, maxClients
	return l
}

func (l *layout) addSet(name string, key []nftables.SetDatatype, value nftables.SetDatatype) *nftables.Set {
	set := nft.NewSet(l.table, name, uint32(len(l.sets)+1), key, value)
	l.sets[name] = set
	return set
}

// endpoint and endpointPort are the registers of the address and port to which a connection is translated.
func (l *layout) endpoint() uint32     { return l.Protocol() + 2 }
func (l *layout) endpointPort() uint32 { return l.endpoint() + l.Size/4 }

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
func (l *layout) Stamp() string {
	pods := strings.NewReplacer(":", "_", "/", "-").Replace(l.pods.String()) // nft accepts no colon in a name
	return version + "-" + l.bridge + "-" + pods
}

// translate looks up the destination of new connections, and if it is the node itself, the port. For connections of
// pods and of the node, it first looks for endpoints that only they reach.
func (l *layout) translate(conn *nftables.Conn) {
	priority := *nftables.ChainPriorityNATDest - priorityStep
	prerouting := l.base(conn, "prerouting", nftables.ChainHookPrerouting, nftables.ChainTypeNAT, priority)
	output := l.base(conn, "output", nftables.ChainHookOutput, nftables.ChainTypeNAT, priority)
	inside, _ := l.destinations(conn, chainInside, chainInsides, setInside)
	if l.bridge != "" {
		l.rule(conn, prerouting, nft.Link(expr.MetaKeyIIFNAME, expr.CmpOpEq, l.bridge), jump(inside))
	}
	l.rule(conn, output, jump(inside))

	lookup := l.lookup(conn, chainServices, chainPorts, setServices)
	lookup(prerouting, nil)
	lookup(output, nil)
}

// destinations creates the chains that apply the verdicts of a set to the destination: one for all destinations, and
// one for the ports of the node only. NodePorts refuse connections to ::1, as upstream.
func (l *layout) destinations(conn *nftables.Conn, services, ports, set string) (all, ofNode *nftables.Chain) {
	ofNode = l.chain(conn, ports)
	l.rule(conn, ofNode, l.NotToLoopback6(), nft.ToLocal(), l.LoadPort(), nft.Decide(l.sets[nodePrefix+set], l.Protocol()))
	all = l.chain(conn, services)
	l.rule(conn, all, l.LoadDestination(), l.LoadPort(), nft.Decide(l.sets[set], l.Destination()))
	l.rule(conn, all, jump(ofNode))
	return all, ofNode
}

// lookup creates the chains that apply the verdicts of a set to the destination, and returns the function that adds a
// jump to them to a base chain, for the packets that match. Pods of another instance on the machine have other
// Services, perhaps at the same addresses: for them, the chains look up only the ports of the node.
func (l *layout) lookup(conn *nftables.Conn, services, ports, set string) func(base *nftables.Chain, match []expr.Any) {
	all, ofNode := l.destinations(conn, services, ports, set)
	return func(base *nftables.Chain, match []expr.Any) {
		if l.bridges != "" {
			prefix := nft.Meta(expr.MetaKeyIIFNAME, expr.CmpOpEq, []byte(l.bridges))
			l.rule(conn, base, match, prefix, nft.Link(expr.MetaKeyIIFNAME, expr.CmpOpNeq, l.bridge),
				nft.Verdict(expr.VerdictGoto, ofNode.Name))
		}
		l.rule(conn, base, match, jump(all))
	}
}

// masquerade hides clients from endpoints whose replies would otherwise not come back through this node: the client
// itself, and endpoints elsewhere. What stays on this node comes back anyway, and so do replies to the node's pods:
// those of other nodes' pods through the routes of package nodes, and all others because package cni masquerades.
func (l *layout) masquerade(conn *nftables.Conn) {
	out := l.base(conn, "postrouting", nftables.ChainHookPostrouting, nftables.ChainTypeNAT,
		*nftables.ChainPriorityNATSource-priorityStep)
	masquerade := []expr.Any{&expr.Masq{FullyRandom: true}}
	notToLo := nft.Link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, "lo")
	l.rule(conn, out, nft.Translated(), notToLo, l.LoadSource(), l.LoadDestination(),
		nft.Contains(l.sets[setLoops], l.Source()), masquerade)
	if l.pods.IsValid() {
		l.rule(conn, out, l.SourceIn(l.pods), nft.Verdict(expr.VerdictReturn, ""))
	}
	l.rule(conn, out, nft.Translated(), notToLo, l.LoadDestination(),
		nft.Contains(l.sets[setRemote], l.Destination()), masquerade)
	if l.IPFamily == corev1.IPv4Protocol && l.bridge != "" { // from the node through 127.0.0.1
		l.rule(conn, out, nft.Translated(), nft.Link(expr.MetaKeyOIFNAME, expr.CmpOpEq, l.bridge),
			l.SourceIn(loopback4), masquerade)
	}
}

// refuse answers connections to Services without endpoints, and keeps packets for 127.0.0.1 from entering through
// the pods' link: connections of the node to its own NodePorts need route_localnet, which lets them leave through that
// link.
func (l *layout) refuse(conn *nftables.Conn) {
	reject := l.chain(conn, chainReject)
	l.rule(conn, reject, nft.L4Protocol(expr.CmpOpEq, unix.IPPROTO_TCP),
		[]expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})
	icmp, portUnreachable := byte(unix.IPPROTO_ICMP), byte(3)
	if l.IPFamily == corev1.IPv6Protocol {
		icmp, portUnreachable = unix.IPPROTO_ICMPV6, 4
	}
	l.rule(conn, reject, []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreachable}})

	lookup := l.lookup(conn, chainUnserved, chainClosed, setUnserved)
	filter := func(name string, hook *nftables.ChainHook) *nftables.Chain {
		base := l.base(conn, name, hook, nftables.ChainTypeFilter, *nftables.ChainPriorityFilter-priorityStep)
		lookup(base, isNew())
		return base
	}
	input := filter("filter-input", nftables.ChainHookInput)
	filter("filter-forward", nftables.ChainHookForward)
	filter("filter-output", nftables.ChainHookOutput)
	l.rule(conn, input, isNew(), nft.L4Protocol(expr.CmpOpNeq, icmp), l.LoadDestination(),
		nft.Contains(l.sets[setClosed], l.Destination()), nft.Verdict(expr.VerdictGoto, reject.Name))
	if l.IPFamily == corev1.IPv4Protocol && l.bridge != "" {
		raw := l.base(conn, "raw-prerouting", nftables.ChainHookPrerouting, nftables.ChainTypeFilter,
			*nftables.ChainPriorityRaw)
		l.rule(conn, raw, nft.Link(expr.MetaKeyIIFNAME, expr.CmpOpEq, l.bridge), l.DestinationIn(loopback4),
			nft.Verdict(expr.VerdictDrop, ""))
	}
}

// guard drops the first packet of a connection to a load balancer from a client that is not in its ranges, before its
// destination is translated.
func (l *layout) guard(conn *nftables.Conn) {
	guard := l.chain(conn, chainGuard)
	sources := l.sets[setSources]
	notInRanges := &expr.Lookup{SourceRegister: l.Destination(), SetName: sources.Name, SetID: sources.ID, Invert: true}
	l.rule(conn, guard, l.LoadDestination(), l.LoadPort(), nft.Contains(l.sets[setGuarded], l.Destination()),
		l.LoadSourceInto(l.endpoint()), []expr.Any{notInRanges}, nft.Verdict(expr.VerdictDrop, ""))

	priority := *nftables.ChainPriorityNATDest - 2*priorityStep
	prerouting := l.base(conn, "guard-prerouting", nftables.ChainHookPrerouting, nftables.ChainTypeFilter, priority)
	output := l.base(conn, "guard-output", nftables.ChainHookOutput, nftables.ChainTypeFilter, priority)
	l.rule(conn, prerouting, isNew(), jump(guard))
	l.rule(conn, output, isNew(), jump(guard))
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
	random := &expr.Numgen{Register: l.endpoint(), Modulus: uint32(p.n), Type: unix.NFT_NG_RANDOM}
	if p.inside {
		random.Offset = insideFrom
	}
	key, prefix, register := nft.Join(l.LoadDestination(), l.LoadPort(), []expr.Any{random}), "", l.Destination()
	if p.node {
		key, prefix, register = nft.Join(l.LoadPort(), []expr.Any{random}), nodePrefix, l.Protocol()
	}
	dnat := []expr.Any{&expr.NAT{
		Type: expr.NATTypeDestNAT, Family: uint32(l.table.Family),
		RegAddrMin: l.endpoint(), RegProtoMin: l.endpointPort(), Specified: true,
	}}
	if p.affinity > 0 {
		l.rule(conn, chain, key, nft.Decide(l.sets[prefix+setSticky], register))
		l.rule(conn, chain, l.LoadSource(), l.LoadDestination(), l.LoadPort(),
			nft.Find(l.sets[setAffinity], l.Source(), l.endpoint()), dnat)
	}
	l.rule(conn, chain, key, nft.Find(l.sets[prefix+setEndpoints], register, l.endpoint()), dnat)
}

func (l *layout) assign(conn *nftables.Conn, chain *nftables.Chain, p picker) {
	set := l.sets[setAffinity]
	l.rule(conn, chain, l.LoadSource(), l.LoadDestination(), l.LoadPort(), []expr.Any{
		&expr.Immediate{Register: l.endpoint(), Data: p.to.Addr().AsSlice()},
		&expr.Immediate{Register: l.endpointPort(), Data: []byte(nft.PortWord(p.to.Port()))[:2]},
		&expr.Dynset{
			SrcRegKey: l.Source(), SrcRegData: l.endpoint(), SetName: set.Name, SetID: set.ID,
			Operation: uint32(unix.NFT_DYNSET_OP_UPDATE), Timeout: p.affinity,
		},
	})
}

func (l *layout) chain(conn *nftables.Conn, name string) *nftables.Chain {
	return conn.AddChain(&nftables.Chain{Name: name, Table: l.table})
}

// base adds a chain at a hook.
func (l *layout) base(conn *nftables.Conn, name string, hook *nftables.ChainHook, typ nftables.ChainType,
	priority nftables.ChainPriority) *nftables.Chain {
	return conn.AddChain(&nftables.Chain{Name: name, Table: l.table, Type: typ, Hooknum: hook, Priority: &priority})
}

func (l *layout) rule(conn *nftables.Conn, chain *nftables.Chain, exprs ...[]expr.Any) {
	conn.AddRule(&nftables.Rule{Table: l.table, Chain: chain, Exprs: nft.Join(exprs...)})
}

func jump(chain *nftables.Chain) []expr.Any { return nft.Verdict(expr.VerdictJump, chain.Name) }

// isNew matches the first packet of a connection.
func isNew() []expr.Any { return nft.States(expr.CtStateBitNEW) }
