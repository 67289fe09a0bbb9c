package service

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// table is the desired table of one family, by Service, and what of it is not yet in the kernel.
type table struct {
	kernel
	routes map[types.NamespacedName]Routes
	owner  map[Frontend]types.NamespacedName // the Service that has a frontend
	shared map[element]int                   // number of routes that need an element of loops or remote
	chains map[string]int                    // number of routes that need a picker's chain
	change *change
	known  bool                  // the kernel has everything but change
	udp    map[Frontend]struct{} // whose endpoints changed
	// clients is set if a client's last endpoint may be gone.
	clients bool
}

func newTable(l *layout) *table {
	return &table{
		kernel: kernel{l}, routes: map[types.NamespacedName]Routes{}, owner: map[Frontend]types.NamespacedName{},
		shared: map[element]int{}, chains: map[string]int{}, change: newChange(), udp: map[Frontend]struct{}{},
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
		if e.set != setLoops && e.set != setRemote {
			t.alter(e, by)
			return
		}
		was := t.shared[e]
		t.shared[e] = was + by
		if was == 0 || was+by == 0 {
			t.alter(e, by)
		}
		if was+by == 0 {
			delete(t.shared, e)
		}
	})
	routes.pickers(func(p picker) {
		name := p.chain()
		was := t.chains[name]
		t.chains[name] = was + by
		switch was + by {
		case 0:
			delete(t.chains, name)
			if _, ok := t.change.create[name]; ok {
				delete(t.change.create, name)
			} else {
				t.change.remove[name] = struct{}{}
			}
		case by: // the first
			if _, ok := t.change.remove[name]; ok {
				delete(t.change.remove, name)
			} else {
				t.change.create[name] = p
			}
		}
	})
}

func (t *table) alter(e element, by int) {
	if by > 0 {
		t.change.insert(e)
	} else {
		t.change.drop(e)
	}
}

// note notes the UDP frontends whose endpoints changed, and whether clients of others are to be forgotten.
func (t *table) note(old, next Routes) {
	for front, was := range old {
		if sameEndpoints(was, next[front]) {
			continue
		}
		t.clients = t.clients || was.Affinity > 0
		if front.Protocol == corev1.ProtocolUDP {
			t.udp[front] = struct{}{}
		}
	}
	for front := range next {
		if _, ok := old[front]; !ok && front.Protocol == corev1.ProtocolUDP {
			t.udp[front] = struct{}{}
		}
	}
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

// sync brings the kernel to the desired state in one transaction. After a failure, and the first time, it compares
// everything with what the kernel has.
func (t *table) sync() error {
	if !t.known {
		change, err := t.compare()
		if err != nil {
			return err
		}
		t.change = change
	}
	t.known = false
	if err := t.write(t.change); err != nil {
		return fmt.Errorf("write nftables table %s: %w", t.table.Name, err)
	}
	t.change, t.known = newChange(), true
	return nil
}

// compare returns the difference between the kernel and the desired table.
func (t *table) compare() (*change, error) {
	have, chains, ok, err := t.read()
	if err != nil {
		return nil, err
	}
	c := newChange()
	c.fresh = !ok
	t.clients = ok // they may be of an earlier process
	surplus := maps.Clone(have)
	for _, routes := range t.routes {
		routes.elements(func(e element) {
			if _, ok := have[e]; !ok {
				c.add[e] = struct{}{}
			}
			delete(surplus, e)
		})
		routes.pickers(func(p picker) {
			if _, ok := chains[p.chain()]; !ok {
				c.create[p.chain()] = p
			}
		})
	}
	if len(surplus) > 0 {
		c.delete = surplus
	}
	for name := range chains {
		if t.chains[name] == 0 {
			c.remove[name] = struct{}{}
		}
	}
	return c, nil
}
