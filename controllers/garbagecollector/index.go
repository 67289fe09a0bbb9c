package garbagecollector

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// index finds an owner's dependents, and whether each blocks its deletion in the
// foreground.
type index struct {
	mu sync.RWMutex // guards of
	of map[types.UID]map[item]bool
}

func newIndex() *index { return &index{of: map[types.UID]map[item]bool{}} }

// change replaces the owners of i.
func (x *index) change(i item, before, after []metav1.OwnerReference) {
	if len(before) == 0 && len(after) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, ref := range before {
		delete(x.of[ref.UID], i)
		if len(x.of[ref.UID]) == 0 {
			delete(x.of, ref.UID)
		}
	}
	for _, ref := range after {
		if x.of[ref.UID] == nil {
			x.of[ref.UID] = map[item]bool{}
		}
		x.of[ref.UID][i] = ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
	}
}

// dependents of an owner.
func (x *index) dependents(owner types.UID) []item {
	return x.pick(owner, func(bool) bool { return true })
}

// blocking dependents of an owner.
func (x *index) blocking(owner types.UID) []item {
	return x.pick(owner, func(blocks bool) bool { return blocks })
}

func (x *index) pick(owner types.UID, want func(blocks bool) bool) []item {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var out []item
	for i, blocks := range x.of[owner] {
		if want(blocks) {
			out = append(out, i)
		}
	}
	return out
}

// graph is the index as text: each owner's UID with its dependents.
func (x *index) graph() map[types.UID][]string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := make(map[types.UID][]string, len(x.of))
	for owner, dependents := range x.of {
		for i := range dependents {
			out[owner] = append(out[owner], i.String())
		}
		slices.Sort(out[owner])
	}
	return out
}

// DebuggingHandler answers, as JSON, which objects name each owner.
func (c *Controller) DebuggingHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		graph := map[types.UID][]string{}
		if x := c.current.Load(); x != nil {
			graph = x.graph()
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(graph) // the reader has gone; nobody to tell
	})
}
