package service

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"monopod/agent/network/nft"
)

// The names of the maps and sets. For the ports of the node, a map's name begins with nodePrefix.
const (
	setServices  = "services"
	setInside    = "inside"
	setEndpoints = "endpoints"
	setSticky    = "sticky"
	setUnserved  = "unserved"
	setLoops     = "loops"
	setRemote    = "remote"
	setGuarded   = "guarded"
	setSources   = "sources"
	setClosed    = "closed"
	setAffinity  = "affinity" // filled by the kernel

	nodePrefix = "node-"
)

// insideFrom is the index of the first endpoint for clients inside the cluster, which is beyond those for others.
const insideFrom = 1 << 20

// dropped is the value of an element of unserved whose connections are dropped.
const dropped = "drop"

// element is one element of a set or map. Value is the chain of a verdict, the bytes of data, the end of a range, or
// empty.
type element = nft.Element

// elements calls add for each element of the routes, except for hosts.
func (r Routes) elements(add func(element)) {
	for _, entry := range r {
		front, route := entry.Frontend, entry.Route
		key, prefix := front.key(), front.prefix()
		if !front.Inside && route.Guarded { // elements that refuse clients
			add(element{Set: setGuarded, Key: key})
			for _, p := range route.Sources {
				add(element{Set: setSources, Key: key + string(p.Addr().AsSlice()), Value: key + string(last(p).AsSlice())})
			}
		}
		if len(route.Endpoints) == 0 {
			verdict := chainReject
			if route.Drop {
				verdict = dropped
			}
			add(element{Set: prefix + setUnserved, Key: key, Value: verdict})
			continue
		}
		services, from := setServices, 0
		if front.Inside {
			services, from = setInside, insideFrom
		}
		add(element{Set: prefix + services, Key: key, Value: route.picker(front).chain()})
		for i, e := range route.Endpoints {
			add(element{Set: prefix + setEndpoints, Key: key + index(from+i),
				Value: string(e.Addr().AsSlice()) + nft.PortWord(e.port)})
			if route.Affinity > 0 {
				add(element{Set: prefix + setSticky, Key: key + index(from+i),
					Value: picker{to: e.AddrPort(), affinity: route.Affinity}.chain()})
			}
		}
	}
}

// host is an address that is the whole key of an element: that of an endpoint, or one that only load balancers have.
// Several routes may need the same.
type host struct {
	ip     [16]byte
	remote bool // an endpoint of another node
	closed bool // a load balancer
}

func (h host) addr() netip.Addr { return netip.AddrFrom16(h.ip).Unmap() }

// element returns the element with the host as its key.
func (h host) element() element {
	at := string(h.addr().AsSlice())
	switch {
	case h.closed:
		return element{Set: setClosed, Key: at}
	case h.remote:
		return element{Set: setRemote, Key: at}
	}
	return element{Set: setLoops, Key: at + at}
}

// hosts calls add for the hosts of each route.
func (r Routes) hosts(add func(host)) {
	for _, entry := range r {
		if entry.Closed && !entry.Inside {
			add(host{ip: entry.Frontend.Addr.As16(), closed: true})
		}
		for _, e := range entry.Endpoints {
			add(host{ip: e.ip, remote: !e.Local})
		}
	}
}

// last returns the last address of a range.
func last(p netip.Prefix) netip.Addr {
	raw := p.Addr().AsSlice()
	for i := p.Bits(); i < len(raw)*8; i++ {
		raw[i/8] |= 1 << (7 - i%8)
	}
	ip, _ := netip.AddrFromSlice(raw)
	return ip
}

// node reports whether the frontend is a port of all addresses of the node.
func (f Frontend) node() bool { return f.Addr.IsUnspecified() }

func (f Frontend) prefix() string {
	if f.node() {
		return nodePrefix
	}
	return ""
}

// key is address . protocol . port, for the node without the address. Every part begins a new word, as in the
// kernel's registers.
func (f Frontend) key() string {
	rest := string([]byte{f.Protocol, 0, 0, 0}) + nft.PortWord(f.Port)
	if f.node() {
		return rest
	}
	return string(f.Addr.AsSlice()) + rest
}

// index encodes an index as the kernel encodes random numbers.
func index(i int) string { return string(binary.NativeEndian.AppendUint32(nil, uint32(i))) }

// picker describes a chain: it picks one of n endpoints, or with affinity the client's last one; without n, it
// assigns a client to an endpoint. Chains are shared by all Services with the same picker.
type picker struct {
	n        int
	node     bool           // for the ports of the node
	inside   bool           // for clients inside the cluster, if they have other endpoints
	to       netip.AddrPort // of a chain that assigns
	affinity time.Duration  // 0: none
}

// The beginnings of the names of pickers' chains, after nodePrefix.
const (
	insidePrefix = "inside-" // before the next
	pickPrefix   = "pick-"
	stickyPrefix = "sticky-"
	assignPrefix = "assign-"
)

// Chains for up to standing endpoints exist even if no Service needs them: the kernel takes some
// milliseconds to create or remove a chain, and less than a tenth of one for elements.
const standing = 16

// chain is the name of the picker's chain.
func (p picker) chain() string {
	if p.n == 0 {
		address := strings.ReplaceAll(p.to.Addr().String(), ":", "_") // nft accepts no colon in a name
		return assignPrefix + address + "-" + strconv.Itoa(int(p.to.Port())) + "-" +
			strconv.Itoa(int(p.affinity/time.Second)) + "s"
	}
	name := pickPrefix
	if p.affinity > 0 {
		name = stickyPrefix
	}
	if p.inside {
		name = insidePrefix + name
	}
	if p.node {
		name = nodePrefix + name
	}
	return name + strconv.Itoa(p.n)
}

// pickers calls add for the pickers of each route that need chains in addition to the standing ones.
func (r Routes) pickers(add func(picker)) {
	for _, entry := range r {
		n := len(entry.Endpoints)
		if n > standing || n > 0 && (entry.Inside || entry.Affinity > 0) {
			add(entry.picker(entry.Frontend))
		}
		if entry.Affinity == 0 {
			continue
		}
		for _, e := range entry.Endpoints {
			add(picker{to: e.AddrPort(), affinity: entry.Affinity})
		}
	}
}

func (r Route) picker(front Frontend) picker {
	return picker{n: len(r.Endpoints), node: front.node(), inside: front.Inside, affinity: r.Affinity}
}
