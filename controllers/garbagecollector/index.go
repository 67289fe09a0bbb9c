package garbagecollector

import (
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
