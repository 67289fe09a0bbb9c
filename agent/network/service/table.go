package service

import (
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/network/nft"
)

// table is the desired table of one family, by Service, with the changes that the kernel does not have yet.
type table struct {
	*layout
	*nft.Table
	services      map[types.NamespacedName]*owner
	owner         map[Frontend]*owner
	udp           map[Frontend]struct{} // frontends with possibly stale flows
	hosts         map[host]int32        // number of routes that need each
	closedChanged bool                  // the addresses that only load balancers have changed
	clientsStale  bool                  // affinity may contain clients of removed endpoints

	flows *netlink.Handle // stays open, as nft.Conn; nil: not yet, or after a failure
}

// owner is a Service with its routes.
type owner struct {
	key types.NamespacedName
	Routes
}

func newTable(l *layout) *table {
	return &table{
		layout: l, Table: nft.New(l), services: map[types.NamespacedName]*owner{},
		owner: map[Frontend]*owner{}, udp: map[Frontend]struct{}{}, hosts: map[host]int32{},
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
		front.Inside = false // the Frontend for other clients has the same owner
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
	t.markStale(old, routes)
	return taken, freed
}

// count adds the elements and chains of routes, or with -1 removes them.
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
			t.closedChanged = t.closedChanged || h.closed
		}
	})
	routes.pickers(func(p picker) { t.Need(t.part(p), by) })
}

// part is the chain of a picker.
func (t *table) part(p picker) nft.Part {
	return nft.Part{Name: p.chain(), Fill: func(conn *nftables.Conn) { t.pick(conn, p) }}
}

// markStale records the UDP frontends with possibly stale flows (new ones, and those that had no endpoints or lose
// some), and whether clients lose their affinity.
func (t *table) markStale(old, next Routes) {
	for _, was := range old {
		now, _ := next.find(was.Frontend)
		if slices.Equal(was.Endpoints, now.Endpoints) {
			continue
		}
		t.clientsStale = t.clientsStale || was.Affinity > 0
		removed := func(e Endpoint) bool { return !slices.Contains(now.Endpoints, e) }
		if len(was.Endpoints) == 0 || slices.ContainsFunc(was.Endpoints, removed) {
			t.markFlows(was.Frontend)
		}
	}
	for _, now := range next {
		if _, ok := old.find(now.Frontend); !ok {
			t.markFlows(now.Frontend)
		}
	}
}

// markFlows records that the flows through a UDP frontend may be stale.
func (t *table) markFlows(front Frontend) {
	if front.Inside = false; front.Protocol == unix.IPPROTO_UDP {
		t.udp[front] = struct{}{}
	}
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
	t.clientsStale = t.clientsStale || found // an earlier process may have assigned them
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
