package plugins

import (
	"math"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/registry/kind"
)

// ledger contains the admitted writes that a list of the stored objects may not show yet. A check
// begins before it lists, so that it sees each write that ends later; an object that is both
// listed and in the ledger is recognized by its UID.
type ledger struct {
	mu       sync.Mutex // guards the rest; never held over I/O
	time     int64      // number of begins and ends
	checking []int64    // begins of the running checks, oldest first
	holds    []*hold
}

// hold is an admitted object that is being stored.
type hold struct {
	resource schema.GroupResource
	object   kind.Object // as it will be stored; immutable
	ended    int64       // 0: not ended
}

// begin starts a check, which end ends.
func (l *ledger) begin() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.time++
	l.checking = append(l.checking, l.time)
	return l.time
}

func (l *ledger) end(began int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checking = slices.DeleteFunc(l.checking, func(t int64) bool { return t == began })
	l.forget()
}

// take calls allow with what a list made since begin may lack, and adds h if it agrees; a nil h
// adds nothing. Calls run one after the other.
func (l *ledger) take(began int64, h *hold, allow func(pending []*hold) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var pending []*hold
	for _, other := range l.holds {
		if other.ended == 0 || other.ended > began {
			pending = append(pending, other)
		}
	}
	if err := allow(pending); err != nil {
		return err
	}
	if h != nil {
		l.holds = append(l.holds, h)
	}
	return nil
}

// release ends a write; checks that began earlier still see it.
func (l *ledger) release(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.time++
	h.ended = l.time
	l.forget()
}

// forget removes the writes that no running check can miss.
func (l *ledger) forget() {
	oldest := int64(math.MaxInt64)
	if len(l.checking) > 0 {
		oldest = l.checking[0]
	}
	l.holds = slices.DeleteFunc(l.holds, func(h *hold) bool { return h.ended != 0 && h.ended < oldest })
}
