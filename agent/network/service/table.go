package service

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/network/nft"
)

// table is the desired table of one family, by Service, and what of it is not yet in the kernel.
type table struct {
	*layout
	*nft.Table
	routes map[types.NamespacedName]Routes
	owner  map[Frontend]types.NamespacedName // the Service that has a frontend
	udp    map[Frontend]struct{}             // whose flows may lead elsewhere than to their endpoints
	// closed are the addresses that only load balancers have, and how many routes of each; moved: they changed.
	closed map[netip.Addr]int
	moved  bool
	// clients is set if a client's last endpoint may be gone.
	clients bool
	flows   *netlink.Handle // stays open, as nft.Conn; nil: not yet, or after a failure
}

func newTable(l *layout) *table {
	return &table{
		layout: l, Table: nft.New(l), routes: map[types.NamespacedName]Routes{}, owner: map[Frontend]types.NamespacedName{}, udp: map[Frontend]struct{}{},
		closed: map[netip.Addr]int{},
	}
}

// set replaces the routes of a Service; empty: it has none. It returns the frontends that another Service already
// has, which are left out, and the Services that wait for one that this Service gave up.
func (t *table) set(key types.NamespacedName, routes Routes) (taken []Frontend, freed bool) {
	for front := range routes {
		if owner, ok := t.owner[front]; ok && owner != key {
			taken = append(taken, front)
		}
	}
	if len(taken) > 0 {
		routes = maps.Clone(routes)
		for _, front := range taken {
			delete(routes, front)
		}
	}
	old := t.routes[key]
	for front := range old {
		if _, ok := routes[front]; !ok {
			delete(t.owner, front)
			freed = true
		}
	}
	for front := range routes {
		t.owner[front] = key
	}
	if len(routes) > 0 {
		t.routes[key] = routes
	} else {
		delete(t.routes, key)
	}
	t.count(old, -1)
	t.count(routes, 1)
	t.note(old, routes)
	return taken, freed
}

// count adds the elements and chains of routes, or removes them.
func (t *table) count(routes Routes, by int) {
	routes.elements(func(e element) {
		if e.Set == setClosed {
			t.close(e.Key, by)
		}
		if e.Set == setLoops || e.Set == setRemote || e.Set == setClosed {
			t.Share(e, by)
		} else {
			t.Alter(e, by)
		}
	})
	routes.pickers(func(p picker) { t.Need(t.part(p), by) })
}

// part is the chain of a picker.
func (t *table) part(p picker) nft.Part {
	return nft.Part{Name: p.chain(), Fill: func(conn *nftables.Conn) { t.pick(conn, p) }}
}

// close counts the routes of an address that only load balancers have.
func (t *table) close(key string, by int) {
	ip, _ := netip.AddrFromSlice([]byte(key))
	was := t.closed[ip]
	t.closed[ip] = was + by
	t.moved = t.moved || was == 0 || was+by == 0
	if was+by == 0 {
		delete(t.closed, ip)
	}
}

// note notes the UDP frontends whose flows may have to move: new ones, and those without or with fewer endpoints; and whether clients of others are to be forgotten.
func (t *table) note(old, next Routes) {
	for front, was := range old {
		if sameEndpoints(was, next[front]) {
			continue
		}
		t.clients = t.clients || was.Affinity > 0
		if front.Protocol == corev1.ProtocolUDP && (len(was.Endpoints) == 0 || loses(was, next[front])) {
			t.udp[front] = struct{}{}
		}
	}
	for front := range next {
		if _, ok := old[front]; !ok && front.Protocol == corev1.ProtocolUDP {
			t.udp[front] = struct{}{}
		}
	}
}

// loses reports whether an endpoint is not one of next.
func loses(was, next Route) bool {
	return slices.ContainsFunc(was.Endpoints, func(e Endpoint) bool { return !slices.Contains(next.Endpoints, e) })
}

func sameEndpoints(a, b Route) bool {
	if len(a.Endpoints) != len(b.Endpoints) {
		return false
	}
	for i := range a.Endpoints {
		if a.Endpoints[i] != b.Endpoints[i] {
			return false
		}
	}
	return true
}

// sync brings the kernel to the desired state.
func (t *table) sync() error {
	found, err := t.Sync(t.all)
	t.clients = t.clients || found // they may be of an earlier process
	return err
}

// all implements nft.All.
func (t *table) all(element func(element), part func(nft.Part)) {
	for _, routes := range t.routes {
		routes.elements(element)
		routes.pickers(func(p picker) { part(t.part(p)) })
	}
}
