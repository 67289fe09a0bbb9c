package store

import (
	"cmp"
	"sort"
)

// What a history keeps unless Config says otherwise.
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
}

func newHistory(rev int64, maxCount, maxBytes int) history {
	return history{floor: rev, maxCount: cmp.Or(maxCount, defaultHistory), maxBytes: cmp.Or(maxBytes, defaultHistoryBytes)}
}

func (h *history) add(ev *Event) {
	h.events = append(h.events, ev)
	h.bytes += ev.size()
	drop := 0
	for len(h.events)-drop > h.maxCount || (h.bytes > h.maxBytes && len(h.events)-drop > 1) {
		h.floor = h.events[drop].Rev
		h.bytes -= h.events[drop].size()
		h.events[drop] = nil
		drop++
	}
	h.events = h.events[drop:] // append reallocates once in a while and frees the front
}

// after returns the events after rev; false when some of them have left the
// history. They are the history's own: copy them before the lock goes.
func (h *history) after(rev int64) ([]*Event, bool) {
	if rev < h.floor {
		return nil, false
	}
	i := sort.Search(len(h.events), func(i int) bool { return h.events[i].Rev > rev })
	return h.events[i:], true
}

// size is what the event alone keeps in memory: the object it replaced, or the
// one it removed.
func (e *Event) size() int {
	n := 256
	if e.Old != nil {
		n += len(e.Old.JSON)
	}
	return n
}
