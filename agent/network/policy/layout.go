package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/network/nft"
)

const (
	// version names an empty chain. Another layout of chains and rules needs another version, so that a new
	// process replaces the table of an old one.
	version = "layout-1"

	setEgress  = "egress"
	setIngress = "ingress"
	setSelf    = "self"

	chainForward = "forward"
	chainAdmit   = "admit" // applies the policies of the destination
)

// The beginnings of the names of sets and chains that are parts.
const (
	prefixPods   = "pods-"
	prefixBlocks = "blocks-"
	prefixPorts  = "ports-"
	prefixNamed  = "named-"
	prefixOut    = "out-"
	prefixIn     = "in-"
)

// end is the Value of an element that is the first address after a range.
const end = "end"

// layout creates the table of one family.
type layout struct {
	nft.Family
	table *nftables.Table
	sets  map[string]*nftables.Set
}

var _ nft.Layout = (*layout)(nil)

func newLayout(name string, family corev1.IPFamily) *layout {
	l := &layout{Family: nft.FamilyOf(family), sets: map[string]*nftables.Set{}}
	l.table = &nftables.Table{Name: name, Family: l.Family.Table}
	address := []nftables.SetDatatype{l.Address}
	l.sets[setEgress] = nft.NewSet(l.table, setEgress, 1, address, nftables.TypeVerdict)
	l.sets[setIngress] = nft.NewSet(l.table, setIngress, 2, address, nftables.TypeVerdict)
	l.sets[setSelf] = nft.NewSet(l.table, setSelf, 3, []nftables.SetDatatype{l.Address, l.Address}, nftables.SetDatatype{})
	return l
}

// partID is the ID of all sets that are parts: the kernel finds them by their names.
const partID = 4

// Table implements nft.Layout.
func (l *layout) Table() *nftables.Table { return l.table }

// Stamp implements nft.Layout.
func (l *layout) Stamp() string { return version }

// IsPart implements nft.Layout.
func (l *layout) IsPart(name string) bool {
	prefixes := []string{prefixPods, prefixBlocks, prefixPorts, prefixNamed, prefixOut, prefixIn}
	return name == chainForward ||
		slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// Set implements nft.Layout.
func (l *layout) Set(name string) *nftables.Set {
	if set := l.sets[name]; set != nil {
		return set
	}
	add := func(key ...nftables.SetDatatype) *nftables.Set {
		return nft.NewSet(l.table, name, partID, key, nftables.SetDatatype{})
	}
	switch prefix, _, _ := strings.Cut(name, "-"); prefix + "-" {
	case prefixPods:
		return add(l.Address)
	case prefixBlocks:
		set := add(l.Address)
		set.Interval = true
		return set
	case prefixPorts:
		set := add(nftables.TypeInetProto, nftables.TypeInetService)
		set.Interval = true
		return set
	case prefixNamed:
		return add(l.Address, nftables.TypeInetProto, nftables.TypeInetService)
	}
	return nil
}

// ToKernel implements nft.Layout.
func (l *layout) ToKernel(e nft.Element) nftables.SetElement {
	out := nftables.SetElement{Key: []byte(e.Key)}
	switch {
	case e.Set == setEgress || e.Set == setIngress:
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.Value}
	case strings.HasPrefix(e.Set, prefixPorts):
		out.KeyEnd = []byte(e.Value)
	case e.Value == end:
		out.IntervalEnd = true
	}
	return out
}

// FromKernel implements nft.Layout.
func (l *layout) FromKernel(set *nftables.Set, e nftables.SetElement) nft.Element {
	out := nft.Element{Set: set.Name, Key: string(e.Key)}
	switch {
	case set.IsMap:
		out.Value = nft.ChainOf(e.Val)
	case set.Interval && set.Concatenation:
		out.Value = string(e.KeyEnd)
	case e.IntervalEnd:
		out.Value = end
	}
	return out
}

// Create implements nft.Layout.
func (l *layout) Create(conn *nftables.Conn) error {
	conn.AddTable(l.table)
	for _, name := range []string{setEgress, setIngress, setSelf} {
		if err := conn.AddSet(l.sets[name], nil); err != nil {
			return err
		}
	}
	l.chain(conn, l.Stamp())
	l.chain(conn, chainAdmit)
	l.rule(conn, chainAdmit, l.LoadDestination(), nft.Decide(l.sets[setIngress], l.Destination()))
	l.rule(conn, chainAdmit, nft.Verdict(expr.VerdictAccept, ""))
	return nil
}

func (l *layout) chain(conn *nftables.Conn, name string) {
	conn.AddChain(&nftables.Chain{Name: name, Table: l.table})
}

func (l *layout) rule(conn *nftables.Conn, chain string, exprs ...[]expr.Any) {
	to := &nftables.Chain{Name: chain, Table: l.table}
	conn.AddRule(&nftables.Rule{Table: l.table, Chain: to, Exprs: nft.Join(exprs...)})
}

// forward is the chain at the hook. A verdict of accept applies to this table only: other tables may still drop the
// packet.
func (l *layout) forward() nft.Part {
	chain := &nftables.Chain{Name: chainForward, Table: l.table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter}
	return nft.Part{Name: chainForward, Chain: chain, Fill: func(conn *nftables.Conn) {
		accept := nft.Verdict(expr.VerdictAccept, "")
		l.rule(conn, chainForward, nft.Reply(), accept)
		l.rule(conn, chainForward, nft.States(expr.CtStateBitRELATED), accept)
		l.rule(conn, chainForward, l.LoadSource(), l.LoadDestination(), nft.Contains(l.sets[setSelf], l.Source()), accept)
		l.rule(conn, chainForward, l.LoadSource(), nft.Decide(l.sets[setEgress], l.Source()))
		l.rule(conn, chainForward, nft.Verdict(expr.VerdictGoto, chainAdmit))
	}}
}

// direction describes the chains of policies that select the source (egress) or the destination (ingress) of a
// connection.
type direction struct {
	prefix  string // of chains
	set     string // maps the addresses of pods to the chains
	verdict []expr.Any
	peer    uint32 // register of the address of the peer, which load fills
	load    []expr.Any
}

func (l *layout) directions() (egress, ingress direction) {
	toIngress, accept := nft.Verdict(expr.VerdictGoto, chainAdmit), nft.Verdict(expr.VerdictAccept, "")
	return direction{prefixOut, setEgress, toIngress, l.Destination(), l.LoadDestination()},
		direction{prefixIn, setIngress, accept, l.Source(), l.LoadSource()}
}

// isolation is the chain of all policies that isolate a pod: it drops packets that none of them allows.
func (l *layout) isolation(d direction, policies []string) nft.Part {
	name := d.prefix + "all-" + hash(policies...)
	return nft.Part{Name: name, Fill: func(conn *nftables.Conn) {
		for _, chain := range policies {
			l.rule(conn, name, nft.Verdict(expr.VerdictJump, chain))
		}
		l.rule(conn, name, nft.Verdict(expr.VerdictDrop, ""))
	}}
}

// allowed are the names of the sets of a rule, which allows the peers in any set of peers at the ports in any set of
// ports; an empty name stands for every peer or port.
type allowed struct{ peers, ports []string }

// maxName bounds the policy's name within the name of a chain, for which the kernel's limit is 255 bytes.
const maxName = 200

// policy is the chain of one policy.
func (l *layout) policy(d direction, name string, rules []allowed) nft.Part {
	text := []string{name}
	for _, r := range rules {
		text = append(text, strings.Join(r.peers, " "), strings.Join(r.ports, " "))
	}
	name = d.prefix + name[:min(len(name), maxName)] + "-" + hash(text...)
	return nft.Part{Name: name, Fill: func(conn *nftables.Conn) {
		for _, r := range rules {
			for _, peers := range r.peers {
				for _, ports := range r.ports {
					l.rule(conn, name, l.matchPeers(d, peers), l.matchPorts(ports), d.verdict)
				}
			}
		}
	}}
}

func (l *layout) matchPeers(d direction, set string) []expr.Any {
	if set == "" {
		return nil
	}
	return nft.Join(d.load, nft.Contains(l.Set(set), d.peer))
}

func (l *layout) matchPorts(set string) []expr.Any {
	switch {
	case set == "":
		return nil
	case strings.HasPrefix(set, prefixNamed):
		return nft.Join(l.LoadDestination(), l.LoadPort(), nft.Contains(l.Set(set), l.Destination()))
	}
	return nft.Join(l.LoadPort(), nft.Contains(l.Set(set), l.Protocol()))
}

// blocks is the set of ranges of addresses, and its elements.
func (l *layout) blocks(all ranges) (nft.Part, []nft.Element) {
	var text []string
	for _, r := range all {
		text = append(text, r.first.String(), r.last.String())
	}
	name := prefixBlocks + hash(text...)
	var elements []nft.Element
	for _, r := range all {
		elements = append(elements, nft.Element{Set: name, Key: bytesOf(r.first)})
		if after := r.last.Next(); after.IsValid() {
			elements = append(elements, nft.Element{Set: name, Key: bytesOf(after), Value: end})
		}
	}
	return nft.Part{Name: name, Set: l.Set(name)}, elements
}

// ports is the set of ranges of ports, and its elements.
func (l *layout) ports(all []portRange) (nft.Part, []nft.Element) {
	var text []string
	for _, p := range all {
		text = append(text, nft.PortKey(p.protocol, p.first), nft.PortKey(p.protocol, p.last))
	}
	name := prefixPorts + hash(text...)
	var elements []nft.Element
	for i := 0; i < len(text); i += 2 {
		elements = append(elements, nft.Element{Set: name, Key: text[i], Value: text[i+1]})
	}
	return nft.Part{Name: name, Set: l.Set(name)}, elements
}

// members is the set of the pods of a selector, or of a named port.
func (l *layout) members(name string) nft.Part { return nft.Part{Name: name, Set: l.Set(name)} }

func (n namedPort) set() string { return prefixNamed + hash(string(n.protocol), n.name) }

// hash returns 96 bits of a cryptographic hash, so that users cannot construct collisions.
func hash(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		h.Write([]byte(text))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

func bytesOf(ip netip.Addr) string { return string(ip.AsSlice()) }
