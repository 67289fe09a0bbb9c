package inventory

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Owners says whose a sandbox or container is, for events that do not. The zero
// value works.
type Owners struct {
	mu   sync.RWMutex // guards what follows
	byID map[string]types.UID
	ids  map[types.UID][]string
}

// Add remembers that the pod has what id names.
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

// Keep forgets what of the pod's is no more.
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
		delete(o.ids, uid) // there may be no map yet
	}
}

// Forget is for a pod that is no more.
func (o *Owners) Forget(uid types.UID) { o.Keep(uid, func(string) bool { return false }) }

// Of is the pod that has one of these; the first that is known counts.
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

// Count is how many sandboxes and containers are known to be a pod's.
func (o *Owners) Count(uid types.UID) int {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return len(o.ids[uid])
}
