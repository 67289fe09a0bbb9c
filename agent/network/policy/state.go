package policy

import (
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/network/nft"
)

// Pod contains the facts about a pod that policies need.
type Pod struct {
	Labels labels.Set
	Addrs  []netip.Addr
	Ports  []Port // with names
	// Remote pods are on other nodes: they are peers, and their own nodes isolate them.
	Remote bool
}

// Port is a named port of a pod.
type Port struct {
	namedPort
	number uint16
}

// state contains the objects from which the tables are computed. It does not depend on the order of changes, except for
// pods with the same address.
type state struct {
	tables     []*table
	namespaces map[string]*namespace
	groups     map[string]*group // by the selector's text
	named      map[namedPort]int // number of rules that name each
	owners     map[netip.Addr]*pod
	policies   int
}

// namespace contains the labels of a namespace, if they are known, and its pods and policies.
type namespace struct {
	labels   labels.Set
	exists   bool
	pods     map[string]*pod
	policies map[string]*policy
}

// group contains the pods that a selector of peers selects.
type group struct {
	selector
	set     string // its name
	rules   int    // number of rules
	members map[*pod]struct{}
}

// pod is a Pod with its entries in the tables.
type pod struct {
	Pod
	types.NamespacedName
	groups     map[*group]struct{}
	isolations []isolation
}

// isolation isolates a pod in one table and direction.
type isolation struct {
	*table
	chain    nft.Part
	elements []nft.Element
}

// policy is a NetworkPolicy and its chains, one for each table and direction that it isolates.
type policy struct {
	*compiled
	chains []chain
}

// chain is the chain of a policy, with the elements that it adds to sets.
type chain struct {
	*table
	set      string // of its direction
	part     nft.Part
	sets     []nft.Part
	elements []nft.Element
}

// table is the table of one family.
type table struct {
	*layout
	*nft.Table
}

func newState(layouts ...*layout) *state {
	s := &state{namespaces: map[string]*namespace{}, groups: map[string]*group{}, named: map[namedPort]int{},
		owners: map[netip.Addr]*pod{}}
	for _, l := range layouts {
		s.tables = append(s.tables, &table{l, nft.New(l)})
	}
	return s
}

// namespace returns a namespace, and adds it if it is not known; forget removes an empty one.
func (s *state) namespace(name string) *namespace {
	ns := s.namespaces[name]
	if ns == nil {
		ns = &namespace{pods: map[string]*pod{}, policies: map[string]*policy{}}
		s.namespaces[name] = ns
	}
	return ns
}

func (s *state) forget(name string) {
	if ns := s.namespaces[name]; !ns.exists && len(ns.pods)+len(ns.policies) == 0 {
		delete(s.namespaces, name)
	}
}

// setNamespace sets the labels of a namespace; exists is false if it no longer exists.
func (s *state) setNamespace(name string, set labels.Set, exists bool) {
	ns := s.namespace(name)
	defer s.forget(name)
	changed := ns.exists != exists || !maps.Equal(ns.labels, set)
	ns.labels, ns.exists = set, exists
	if !changed {
		return
	}
	for _, p := range ns.pods {
		s.regroup(p)
	}
}

// setPod replaces a pod; nil: it no longer exists. Of two pods with the same address, the later one keeps it.
func (s *state) setPod(key types.NamespacedName, next *Pod) {
	ns := s.namespace(key.Namespace)
	defer s.forget(key.Namespace)
	if old := ns.pods[key.Name]; old != nil {
		s.removePod(old)
		delete(ns.pods, key.Name)
	}
	if next == nil {
		return
	}
	p := &pod{Pod: *next, NamespacedName: key, groups: map[*group]struct{}{}}
	for _, addr := range p.Addrs {
		if other := s.owners[addr]; other != nil {
			s.removePod(other)
			other.Addrs = slices.DeleteFunc(slices.Clone(other.Addrs), func(a netip.Addr) bool { return a == addr })
			s.addPod(other)
		}
	}
	ns.pods[key.Name] = p
	s.addPod(p)
}

// addPod adds a pod to the tables, and removePod removes it.
func (s *state) addPod(p *pod) {
	for _, addr := range p.Addrs {
		s.owners[addr] = p
	}
	s.regroup(p)
	s.countNamedPorts(p, nil, 1)
	s.isolate(p)
}

func (s *state) removePod(p *pod) {
	s.release(p)
	s.countNamedPorts(p, nil, -1)
	for g := range p.groups {
		s.quit(p, g)
	}
	for _, addr := range p.Addrs {
		delete(s.owners, addr)
	}
}

// regroup makes a pod a member of exactly the groups that select it.
func (s *state) regroup(p *pod) {
	for _, g := range s.groups {
		_, is := p.groups[g]
		switch want := s.selects(g.selector, p); {
		case want && !is:
			s.join(p, g)
		case is && !want:
			s.quit(p, g)
		}
	}
}

func (s *state) selects(sel selector, p *pod) bool {
	if sel.namespaces == nil {
		return sel.namespace == p.Namespace && sel.pods.Matches(p.Labels)
	}
	ns := s.namespaces[p.Namespace]
	return ns.exists && sel.namespaces.Matches(ns.labels) && sel.pods.Matches(p.Labels)
}

func (s *state) join(p *pod, g *group) {
	p.groups[g], g.members[p] = struct{}{}, struct{}{}
	s.each(p, func(t *table, key string) { t.Alter(nft.Element{Set: g.set, Key: key}, 1) })
}

func (s *state) quit(p *pod, g *group) {
	delete(p.groups, g)
	delete(g.members, p)
	s.each(p, func(t *table, key string) { t.Alter(nft.Element{Set: g.set, Key: key}, -1) })
}

// each calls f for each address of a pod, with its table.
func (s *state) each(p *pod, f func(t *table, key string)) {
	for _, t := range s.tables {
		for _, addr := range p.Addrs {
			if addr.Is4() == t.is4() {
				f(t, bytesOf(addr))
			}
		}
	}
}

// countNamedPorts adds the pod's ports to the sets of the names that rules have, or with only to the set of one name. A
// negative number removes them.
func (s *state) countNamedPorts(p *pod, only *namedPort, by int) {
	for _, port := range p.Ports {
		if s.named[port.namedPort] == 0 || only != nil && *only != port.namedPort {
			continue
		}
		s.each(p, func(t *table, key string) { t.Share(port.element(key), by) })
	}
}

func (p Port) element(address string) nft.Element {
	return nft.Element{Set: p.set(), Key: address + nft.PortKey(p.protocol, p.number)}
}

// isolate isolates a pod, and release ends its isolation.
func (s *state) isolate(p *pod) {
	for _, t := range s.tables {
		egress, ingress := t.directions()
		for _, d := range []direction{egress, ingress} {
			if i, ok := s.isolation(t, d, p); ok {
				i.count(1)
				p.isolations = append(p.isolations, i)
			}
		}
	}
}

func (s *state) release(p *pod) {
	for _, i := range p.isolations {
		i.count(-1)
	}
	p.isolations = nil
}

// isolation returns the isolation of a pod by all policies that select it; false: there are none.
func (s *state) isolation(t *table, d direction, p *pod) (isolation, bool) {
	if p.Remote {
		return isolation{}, false
	}
	var chains []string
	for _, policy := range s.namespaces[p.Namespace].policies {
		if !policy.subject.Matches(p.Labels) {
			continue
		}
		for _, c := range policy.chains {
			if c.table == t && c.set == d.set {
				chains = append(chains, c.part.Name)
			}
		}
	}
	if len(chains) == 0 {
		return isolation{}, false
	}
	slices.Sort(chains)
	out := isolation{table: t, chain: t.layout.isolation(d, chains)}
	s.each(p, func(of *table, key string) {
		if of == t {
			out.elements = append(out.elements, nft.Element{Set: d.set, Key: key, Value: out.chain.Name},
				nft.Element{Set: setSelf, Key: key + key})
		}
	})
	return out, len(out.elements) > 0
}

func (i isolation) count(by int) {
	i.Need(i.chain, by)
	for _, e := range i.elements {
		i.Share(e, by)
	}
}

// setPolicy replaces a policy; nil: it no longer exists.
func (s *state) setPolicy(key types.NamespacedName, c *compiled) {
	ns := s.namespace(key.Namespace)
	defer s.forget(key.Namespace)
	old := ns.policies[key.Name]
	var affected []*pod
	for _, p := range ns.pods {
		if old != nil && old.subject.Matches(p.Labels) || c != nil && c.subject.Matches(p.Labels) {
			affected = append(affected, p)
			s.release(p)
		}
	}
	delete(ns.policies, key.Name)
	if c != nil {
		ns.policies[key.Name] = s.install(key, c)
	}
	if old != nil {
		s.uninstall(old)
	}
	for _, p := range affected {
		s.isolate(p)
	}
}

// install adds the chains of a policy, and the sets that they need.
func (s *state) install(key types.NamespacedName, c *compiled) *policy {
	s.policies++
	p := &policy{compiled: c}
	s.rules(c, 1)
	for _, t := range s.tables {
		egress, ingress := t.directions()
		if c.egress != nil {
			p.chains = append(p.chains, t.chain(egress, key, *c.egress))
		}
		if c.ingress != nil {
			p.chains = append(p.chains, t.chain(ingress, key, *c.ingress))
		}
		t.Need(t.forward(), 1)
	}
	for _, c := range p.chains {
		c.count(1)
	}
	return p
}

func (s *state) uninstall(p *policy) {
	s.policies--
	for _, c := range p.chains {
		c.count(-1)
	}
	for _, t := range s.tables {
		t.Need(t.forward(), -1)
	}
	s.rules(p.compiled, -1)
}

func (c chain) count(by int) {
	c.Need(c.part, by)
	for _, set := range c.sets {
		c.Need(set, by)
	}
	for _, e := range c.elements {
		c.Share(e, by)
	}
}

// rules adds the groups and the named ports that the rules of a policy need, or removes them.
func (s *state) rules(c *compiled, by int) {
	for _, rules := range []*[]rule{c.ingress, c.egress} {
		if rules == nil {
			continue
		}
		for _, r := range *rules {
			for _, sel := range r.peers {
				s.group(sel, by)
			}
			for _, n := range r.named {
				s.port(n, by)
			}
		}
	}
}

func (s *state) group(sel selector, by int) {
	text := sel.text()
	g := s.groups[text]
	if g == nil {
		g = &group{selector: sel, set: prefixPods + hash(text), members: map[*pod]struct{}{}}
		s.groups[text] = g
		s.pods(func(p *pod) {
			if s.selects(sel, p) {
				s.join(p, g)
			}
		})
	}
	g.rules += by
	for _, t := range s.tables {
		t.Need(t.members(g.set), by)
	}
	if g.rules == 0 {
		for p := range g.members {
			s.quit(p, g)
		}
		delete(s.groups, text)
	}
}

func (s *state) port(n namedPort, by int) {
	for _, t := range s.tables {
		t.Need(t.members(n.set()), by)
	}
	if s.named[n] == 0 {
		s.named[n] = by
		s.pods(func(p *pod) { s.countNamedPorts(p, &n, 1) })
		return
	}
	if s.named[n]+by == 0 {
		s.pods(func(p *pod) { s.countNamedPorts(p, &n, -1) })
		delete(s.named, n)
		return
	}
	s.named[n] += by
}

func (s *state) pods(f func(*pod)) {
	for _, ns := range s.namespaces {
		for _, p := range ns.pods {
			f(p)
		}
	}
}

// chain returns the chain of a policy's direction.
func (t *table) chain(d direction, key types.NamespacedName, rules []rule) chain {
	out := chain{table: t, set: d.set}
	add := func(set nft.Part, elements []nft.Element) string {
		out.sets, out.elements = append(out.sets, set), append(out.elements, elements...)
		return set.Name
	}
	var all []allowed
	for _, r := range rules {
		var a allowed
		if r.anyPeer {
			a.peers = []string{""}
		}
		for _, sel := range r.peers {
			a.peers = append(a.peers, prefixPods+hash(sel.text()))
		}
		if blocks := r.blocks.of(t.is4()); len(blocks) > 0 {
			a.peers = append(a.peers, add(t.blocks(blocks)))
		}
		if r.anyPort {
			a.ports = []string{""}
		}
		if len(r.ports) > 0 {
			a.ports = append(a.ports, add(t.ports(mergedPorts(r.ports))))
		}
		for _, n := range r.named {
			a.ports = append(a.ports, n.set())
		}
		all = append(all, a)
	}
	out.part = t.policy(d, key.String(), all)
	return out
}

// all implements nft.All for one table.
func (s *state) all(t *table, element func(nft.Element), part func(nft.Part)) {
	for _, g := range s.groups {
		part(t.members(g.set))
	}
	for n := range s.named {
		part(t.members(n.set()))
	}
	if s.policies > 0 {
		part(t.forward())
	}
	for _, ns := range s.namespaces {
		for _, policy := range ns.policies {
			for _, c := range policy.chains {
				if c.table == t {
					part(c.part)
					list(c.sets, part)
					list(c.elements, element)
				}
			}
		}
		for _, p := range ns.pods {
			s.podParts(t, p, element, part)
		}
	}
}

// podParts calls the functions for the elements and parts of one pod.
func (s *state) podParts(t *table, p *pod, element func(nft.Element), part func(nft.Part)) {
	s.each(p, func(of *table, key string) {
		if of != t {
			return
		}
		for g := range p.groups {
			element(nft.Element{Set: g.set, Key: key})
		}
		for _, port := range p.Ports {
			if s.named[port.namedPort] > 0 {
				element(port.element(key))
			}
		}
	})
	for _, i := range p.isolations {
		if i.table == t {
			part(i.chain)
			list(i.elements, element)
		}
	}
}

func list[T any](all []T, f func(T)) {
	for _, one := range all {
		f(one)
	}
}

func (t *table) is4() bool { return t.Family.Address.Bytes == 4 }
