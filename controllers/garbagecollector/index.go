package garbagecollector

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// index contains the owner references known from watches. The cost of a query is proportional to its result.
type index struct {
	mu      sync.RWMutex // guards the fields below
	of      map[types.UID]*dependents
	waiting map[types.UID]item   // owners in foreground deletion
	at      map[types.UID]string // the namespace of every namespaced object
}

// dependents contains the objects that refer to an owner, and whether each blocks its foreground deletion.
type dependents struct {
	blocks   map[item]bool
	blocking int // number of blocking dependents
}

func newIndex() *index {
	return &index{of: map[types.UID]*dependents{}, waiting: map[types.UID]item{}, at: map[types.UID]string{}}
}

// change replaces the owners of i.
func (x *index) change(i item, before, after []metav1.OwnerReference) {
	if len(before) == 0 && len(after) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, ref := range before {
		x.drop(ref.UID, i)
	}
	for _, ref := range after {
		x.drop(ref.UID, i) // a duplicate reference
		d := x.of[ref.UID]
		if d == nil {
			d = &dependents{blocks: map[item]bool{}}
			x.of[ref.UID] = d
		}
		if d.blocks[i] = ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion; d.blocks[i] {
			d.blocking++
		}
	}
}

// drop removes i from the dependents of an owner. The caller holds mu.
func (x *index) drop(owner types.UID, i item) {
	d := x.of[owner]
	if d == nil {
		return
	}
	if d.blocks[i] {
		d.blocking--
	}
	if delete(d.blocks, i); len(d.blocks) == 0 {
		delete(x.of, owner)
	}
}

// exists records the namespace of i, and whether it waits for its dependents.
func (x *index) exists(i item, waits bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i.namespace != "" {
		x.at[i.uid] = i.namespace
	}
	if waits {
		x.waiting[i.uid] = i
	} else {
		delete(x.waiting, i.uid)
	}
}

// gone removes i.
func (x *index) gone(i item) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.at, i.uid)
	delete(x.waiting, i.uid)
}

// namespace returns the namespace of the object with the UID; false if the object is unknown or cluster-scoped.
func (x *index) namespace(uid types.UID) (string, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	ns, ok := x.at[uid]
	return ns, ok
}

// dependents returns the dependents of an owner.
func (x *index) dependents(owner types.UID) []item {
	return x.pick(owner, func(item) bool { return true })
}

// foreign returns the dependents of an owner that are in other namespaces.
func (x *index) foreign(owner item) []item {
	if owner.namespace == "" {
		return nil
	}
	return x.pick(owner.uid, func(i item) bool { return i.namespace != owner.namespace })
}

func (x *index) pick(owner types.UID, want func(item) bool) []item {
	x.mu.RLock()
	defer x.mu.RUnlock()
	d := x.of[owner]
	if d == nil {
		return nil
	}
	var out []item
	for i := range d.blocks {
		if want(i) {
			out = append(out, i)
		}
	}
	return out
}

func (x *index) has(owner types.UID) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.of[owner] != nil
}

// blocked reports whether a dependent blocks the owner's deletion.
func (x *index) blocked(owner types.UID) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	d := x.of[owner]
	return d != nil && d.blocking > 0
}

// waitingFor returns the owners that wait for a dependent with these references.
func (x *index) waitingFor(refs []metav1.OwnerReference) []item {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var out []item
	for _, ref := range refs {
		if owner, ok := x.waiting[ref.UID]; ok {
			out = append(out, owner)
		}
	}
	return out
}

// graph returns each owner's UID with its dependents.
func (x *index) graph() map[types.UID][]string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := make(map[types.UID][]string, len(x.of))
	for owner, d := range x.of {
		for i := range d.blocks {
			out[owner] = append(out[owner], i.String())
		}
		slices.Sort(out[owner])
	}
	return out
}

// DebuggingHandler serves the owners and their dependents as JSON.
func (c *Controller) DebuggingHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		graph := map[types.UID][]string{}
		if x := c.current.Load(); x != nil {
			graph = x.graph()
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(graph) // fails if the client has disconnected
	})
}
