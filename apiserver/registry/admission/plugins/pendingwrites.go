package plugins

import (
	"math"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/registry/kind"
)

// pendingWrites contains admitted writes that a list of the stored objects may not contain yet. A check begins before
// it lists, so that it sees each write that ends later. If an object is both listed and pending, its UID identifies it.
type pendingWrites struct {
	mu       sync.Mutex // guards the fields below; never held over I/O
	time     int64      // logical clock: ticks at each begin and release
	checking []int64    // start times of the running checks, oldest first
	writes   []*pendingWrite
}

// pendingWrite is an admitted object that is being stored.
type pendingWrite struct {
	resource schema.GroupResource
	object   kind.Object // as it will be stored; immutable
	ended    int64       // 0: not ended
}

// begin starts a check and returns its start time, which the caller must pass to end.
func (l *pendingWrites) begin() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.time++
	l.checking = append(l.checking, l.time)
	return l.time
}

func (l *pendingWrites) end(began int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checking = slices.DeleteFunc(l.checking, func(t int64) bool { return t == began })
	l.forget()
}

// admit calls allow with the writes that a list made since began may lack. If allow returns nil, admit adds h unless it
// is nil. Calls are serialized.
func (l *pendingWrites) admit(began int64, h *pendingWrite, allow func(pending []*pendingWrite) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var pending []*pendingWrite
	for _, other := range l.writes {
		if other.ended == 0 || other.ended > began {
			pending = append(pending, other)
		}
	}
	if err := allow(pending); err != nil {
		return err
	}
	if h != nil {
		l.writes = append(l.writes, h)
	}
	return nil
}

// release ends a write. Checks that began earlier still see it.
func (l *pendingWrites) release(h *pendingWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.time++
	h.ended = l.time
	l.forget()
}

// forget removes the ended writes that all running checks can see in their lists.
func (l *pendingWrites) forget() {
	oldest := int64(math.MaxInt64)
	if len(l.checking) > 0 {
		oldest = l.checking[0]
	}
	l.writes = slices.DeleteFunc(l.writes, func(h *pendingWrite) bool { return h.ended != 0 && h.ended < oldest })
}
