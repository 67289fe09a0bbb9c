package service

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/network/nft"
)

// table is the desired table of one family, by Service, and what of it is not yet in the kernel.
type table struct {
	*layout
	*nft.Table
	services map[types.NamespacedName]*owner
	owner    map[Frontend]*owner
	udp      map[Frontend]struct{} // whose flows may lead elsewhere than to their endpoints
	hosts    map[host]int32        // how many routes need each
	// moved is set if the addresses that only load balancers have changed; clients, if a client's last endpoint may be
	// gone.
	moved, clients bool
	flows          *netlink.Handle // stays open, as nft.Conn; nil: not yet, or after a failure
}

// owner is a Service with its routes.
type owner struct {
	key types.NamespacedName
	Routes
}

func newTable(l *layout) *table {
	return &table{
		layout: l, Table: nft.New(l), services: map[types.NamespacedName]*owner{}, owner: map[Frontend]*owner{}, udp: map[Frontend]struct{}{},
		hosts: map[host]int32{},
	}
}

// set replaces the routes of a Service; empty: it has none. It returns the frontends that another Service already
// has, which are omitted, and whether this Service gave one up.
func (t *table) set(key types.NamespacedName, routes Routes) (taken []Frontend, freed bool) {
	service := t.services[key]
	if service == nil {
		service = &owner{key: key}
	}
	other := func(front Frontend) bool {
		front.Inside = false // where one is, the other is
		has := t.owner[front]
		return has != nil && has != service
	}
	for _, entry := range routes {
		if !entry.Inside && other(entry.Frontend) {
			taken = append(taken, entry.Frontend)
		}
	}
	if len(taken) > 0 {
		routes = slices.DeleteFunc(slices.Clone(routes), func(e Entry) bool { return other(e.Frontend) })
	}
	old := service.Routes
	for _, entry := range old {
		if _, ok := routes.find(entry.Frontend); !ok && !entry.Inside {
			delete(t.owner, entry.Frontend)
			freed = true
		}
	}
	for _, entry := range routes {
		if !entry.Inside {
			t.owner[entry.Frontend] = service
		}
	}
	service.Routes = routes
	if len(routes) > 0 {
		t.services[key] = service
	} else {
		delete(t.services, key)
	}
	t.count(old, -1)
	t.count(routes, 1)
	t.note(old, routes)
	return taken, freed
}

// count adds the elements and chains of routes, or removes them.
func (t *table) count(routes Routes, by int) {
	routes.elements(func(e element) { t.Alter(e, by) })
	routes.hosts(func(h host) {
		was := t.hosts[h]
		now := was + int32(by)
		t.hosts[h] = now
		if now == 0 {
			delete(t.hosts, h)
		}
		if was == 0 || now == 0 {
			t.Alter(h.element(), by)
			t.moved = t.moved || h.closed
		}
	})
	routes.pickers(func(p picker) { t.Need(t.part(p), by) })
}

// closed are the addresses that only load balancers have.
func (t *table) closed() (all []netip.Addr) {
	for h := range t.hosts {
		if h.closed {
			all = append(all, h.addr())
		}
	}
	return all
}

// part is the chain of a picker.
func (t *table) part(p picker) nft.Part {
	return nft.Part{Name: p.chain(), Fill: func(conn *nftables.Conn) { t.pick(conn, p) }}
}

// note records the UDP frontends whose flows may have to move (new ones, and those without or with fewer endpoints),
// and whether clients of other frontends lose their affinity.
func (t *table) note(old, next Routes) {
	for _, was := range old {
		now, _ := next.find(was.Frontend)
		if slices.Equal(was.Endpoints, now.Endpoints) {
			continue
		}
		t.clients = t.clients || was.Affinity > 0
		if len(was.Endpoints) == 0 || loses(was.Route, now) {
			t.move(was.Frontend)
		}
	}
	for _, now := range next {
		if _, ok := old.find(now.Frontend); !ok {
			t.move(now.Frontend)
		}
	}
}

// move notes that flows through the frontend, if it is one of UDP, may have to move.
func (t *table) move(front Frontend) {
	if front.Inside = false; front.Protocol == unix.IPPROTO_UDP {
		t.udp[front] = struct{}{}
	}
}

// loses reports whether an endpoint is not one of next.
func loses(was, next Route) bool {
	return slices.ContainsFunc(was.Endpoints, func(e Endpoint) bool { return !slices.Contains(next.Endpoints, e) })
}

// routesOf returns the routes of the Service that has a frontend; nil: none has it.
func (t *table) routesOf(front Frontend) Routes {
	if has := t.owner[front]; has != nil {
		return has.Routes
	}
	return nil
}

// sync brings the kernel to the desired state.
func (t *table) sync() error {
	found, err := t.Sync(t.all)
	t.clients = t.clients || found // they may be of an earlier process
	return err
}

// all implements nft.All.
func (t *table) all(element func(element), part func(nft.Part)) {
	for _, service := range t.services {
		service.elements(element)
		service.pickers(func(p picker) { part(t.part(p)) })
	}
	for h := range t.hosts {
		element(h.element())
	}
}
