package quota

import (
	"math"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/registry/kind"
)

// ledger knows the writes that a quota has let through and that a list of what
// is stored may not show yet. A check begins before it lists: whatever ends after
// that is told to it, and what is both listed and told is the same by its UID.
type ledger struct {
	mu       sync.Mutex // guards the rest, and is never held over I/O
	time     int64      // counts beginnings and ends
	checking []int64    // when the checks under way began, oldest first
	holds    []*hold
}

// hold is an object on its way into the store.
type hold struct {
	resource schema.GroupResource
	object   kind.Object // as it will be stored: not changed any more
	ended    int64       // 0: not yet
}

// begin starts a check; end ends it.
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

// take asks allow, telling it what a list made since began may lack, and holds h
// when it agrees; a nil h holds nothing. No two are asked at a time.
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

// release says that the write is over; whoever began earlier is still told.
func (l *ledger) release(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.time++
	h.ended = l.time
	l.forget()
}

// forget drops what no check under way can miss.
func (l *ledger) forget() {
	oldest := int64(math.MaxInt64)
	if len(l.checking) > 0 {
		oldest = l.checking[0]
	}
	l.holds = slices.DeleteFunc(l.holds, func(h *hold) bool { return h.ended != 0 && h.ended < oldest })
}
