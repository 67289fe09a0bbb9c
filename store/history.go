package store

import (
	"cmp"
	"sort"
)

// Default limits of a history; see Config.
const (
	defaultHistory      = 4096
	defaultHistoryBytes = 4 << 20
)

// history is the last events of one resource, bounded by count and by bytes of
// JSON. It is guarded by its owner's mutex.
type history struct {
	events   []*Event // in revision order
	floor    int64    // every event after this revision is in events
	bytes    int
	maxCount int
	maxBytes int
	leaves   func(*Event) // called with each event that is dropped; may be nil
}

func newHistory(rev int64, maxCount, maxBytes int) history {
	return history{floor: rev, maxCount: cmp.Or(maxCount, defaultHistory), maxBytes: cmp.Or(maxBytes, defaultHistoryBytes)}
}

func (h *history) add(ev *Event) {
	h.events = append(h.events, ev)
	h.bytes += ev.size()
	drop := 0
	for bytes := h.bytes; len(h.events)-drop > h.maxCount || (bytes > h.maxBytes && len(h.events)-drop > 1); drop++ {
		bytes -= h.events[drop].size()
	}
	h.drop(drop)
}

// drop forgets the first n events.
func (h *history) drop(n int) {
	for i, ev := range h.events[:n] {
		if h.leaves != nil {
			h.leaves(ev)
		}
		h.floor = ev.Rev
		h.bytes -= ev.size()
		h.events[i] = nil
	}
	h.events = h.events[n:] // append reallocates once in a while and frees the front
}

// forget drops the events up to rev, and frees the slice when none is left.
func (h *history) forget(rev int64) {
	h.drop(sort.Search(len(h.events), func(i int) bool { return h.events[i].Rev > rev }))
	if len(h.events) == 0 {
		h.events = nil
	}
}

// after returns the events after rev; false when some of them have left the history.
// The slice is the history's own: copy it before releasing the lock.
func (h *history) after(rev int64) ([]*Event, bool) {
	if rev < h.floor {
		return nil, false
	}
	i := sort.Search(len(h.events), func(i int) bool { return h.events[i].Rev > rev })
	return h.events[i:], true
}

// size is the memory that only the event keeps alive: the object that was replaced or
// removed.
func (e *Event) size() int {
	n := 256
	if e.Old != nil {
		n += int(e.Old.size())
	}
	return n
}
