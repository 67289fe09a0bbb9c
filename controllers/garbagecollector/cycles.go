package garbagecollector

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Owners in foreground deletion can wait for each other in a cycle. Upstream sets blockOwnerDeletion of their
// references to false; here the controller releases one of the owners.

// cycleDelay is the delay between finding an owner blocked and looking for cycles among all owners, so that one
// search serves many owners.
const cycleDelay = 200 * time.Millisecond

// findCycles is the key that searches for cycles.
var findCycles = item{}

// cycles returns one owner of each cycle of owners that wait for each other. A cycle does not include an owner that
// waits, directly or through others, for an object that will be deleted anyway.
func (x *index) cycles() []item {
	x.mu.RLock()
	defer x.mu.RUnlock()
	waitsFor := x.stuck()
	seen := map[types.UID]types.UID{} // by owner: the start of the walk that reached it
	var out []item
	for start := range waitsFor {
		at := start
		for _, known := seen[at]; !known; _, known = seen[at] {
			seen[at] = start
			at = waitsFor[at]
		}
		if seen[at] == start { // the walk has reached itself
			out = append(out, x.waiting[at])
		}
	}
	return out
}

// stuck maps each owner that waits only for other waiting owners to one of those. The caller holds mu.
func (x *index) stuck() map[types.UID]types.UID {
	waitsFor := map[types.UID]types.UID{}
	waiters := map[types.UID][]types.UID{} // by owner, all owners that wait for it
	var free []types.UID
	for owner := range x.waiting {
		ends := x.waitingDependents(owner)
		if ends == nil {
			free = append(free, owner)
			continue
		}
		waitsFor[owner] = ends[0]
		for _, d := range ends {
			waiters[d] = append(waiters[d], owner)
		}
	}
	for len(free) > 0 {
		owner := free[len(free)-1]
		free = free[:len(free)-1]
		for _, w := range waiters[owner] {
			if _, stuck := waitsFor[w]; stuck {
				delete(waitsFor, w)
				free = append(free, w)
			}
		}
	}
	return waitsFor
}

// waitingDependents returns the dependents that block the owner if all of them are waiting owners; nil if one is not,
// or there are none. The caller holds mu.
func (x *index) waitingDependents(owner types.UID) []types.UID {
	d := x.of[owner]
	if d == nil {
		return nil
	}
	var out []types.UID
	for i, blocks := range d.blocks {
		if !blocks {
			continue
		}
		if _, waits := x.waiting[i.uid]; !waits {
			return nil
		}
		out = append(out, i.uid)
	}
	return out
}
