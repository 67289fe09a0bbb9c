package relist

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Owners maps sandboxes and containers to pods, for events without a pod. The zero value is ready to use.
type Owners struct {
	mu   sync.RWMutex // guards what follows
	byID map[string]types.UID
	ids  map[types.UID][]string
}

// Add records that the sandbox or container id belongs to the pod.
func (o *Owners) Add(id string, uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID, o.ids = map[string]types.UID{}, map[types.UID][]string{}
	}
	if _, known := o.byID[id]; !known {
		o.byID[id], o.ids[uid] = uid, append(o.ids[uid], id)
	}
}

// Keep removes the pod's IDs that no longer exist.
func (o *Owners) Keep(uid types.UID, exists func(id string) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := slices.DeleteFunc(o.ids[uid], func(id string) bool {
		if exists(id) {
			return false
		}
		delete(o.byID, id)
		return true
	})
	if len(left) > 0 {
		o.ids[uid] = left
	} else {
		delete(o.ids, uid) // the map may be nil
	}
}

// Forget removes a pod.
func (o *Owners) Forget(uid types.UID) { o.Keep(uid, func(string) bool { return false }) }

// Of returns the pod of the first known ID; empty: none is known.
func (o *Owners) Of(ids ...string) types.UID {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, id := range ids {
		if uid, ok := o.byID[id]; ok {
			return uid
		}
	}
	return ""
}

// Count returns the number of the pod's known IDs.
func (o *Owners) Count(uid types.UID) int {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return len(o.ids[uid])
}
