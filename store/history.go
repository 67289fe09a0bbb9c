package store

import (
	"bytes"
	"cmp"
	"reflect"
	"sort"
)

// Default limits of a history; see Config.
const (
	defaultHistory      = 4096
	defaultHistoryBytes = 16 << 20
	defaultHistoryTotal = 32 << 20
)

// history contains the last events of a resource, limited by their number and their memory. The owner's mutex guards
// it.
type history struct {
	events   []*Event // in revision order
	floor    int64    // every event after this revision is in events
	bytes    int      // weight of the events
	allBytes *int     // weight of the events of all histories
	maxCount int
	maxBytes int
}

func newHistory(rev int64, cfg Config, total *int) history {
	return history{floor: rev, allBytes: total, maxCount: cmp.Or(cfg.History, defaultHistory),
		maxBytes: cmp.Or(cfg.HistoryBytes, defaultHistoryBytes)}
}

func (h *history) add(ev *Event) {
	ev.weight = ev.weigh()
	h.events = append(h.events, ev)
	h.count(ev.weight)
	if n := len(h.events) - h.maxCount; n > 0 {
		h.drop(n)
	}
	h.shrink(h.maxBytes)
}

// shrink drops the oldest events until the others weigh at most that many bytes. The newest event always stays.
func (h *history) shrink(most int) {
	drop := 0
	for left := h.bytes; left > most && drop < len(h.events)-1; drop++ {
		left -= h.events[drop].weight
	}
	h.drop(drop)
}

// drop drops the oldest n events.
func (h *history) drop(n int) {
	for i, ev := range h.events[:n] {
		h.floor = ev.Rev
		h.count(-ev.weight)
		h.events[i] = nil
	}
	h.events = h.events[n:] // when append reallocates, the dropped elements are freed
}

// forget drops the events up to rev, and frees the slice if no event is left.
func (h *history) forget(rev int64) {
	h.drop(sort.Search(len(h.events), func(i int) bool { return h.events[i].Rev > rev }))
	if len(h.events) == 0 {
		h.events = nil
	}
}

// after returns the events after rev; false if some of them are no longer in the history. The caller must copy the
// slice before it releases the lock.
func (h *history) after(rev int64) ([]*Event, bool) {
	if rev < h.floor {
		return nil, false
	}
	i := sort.Search(len(h.events), func(i int) bool { return h.events[i].Rev > rev })
	return h.events[i:], true
}

func (h *history) count(weight int) {
	h.bytes += weight
	*h.allBytes += weight
}

// shrinkHistories drops the oldest events of the largest histories, until all histories together are within their
// limit: resources that rarely change keep their history. The caller holds m.mu.
func (m *Memory) shrinkHistories() {
	for most := cmp.Or(m.cfg.HistoryTotal, defaultHistoryTotal); m.historyBytes > most; {
		var biggest *history
		for _, t := range m.tables {
			if h := &t.history; len(h.events) > 1 && (biggest == nil || h.bytes > biggest.bytes) {
				biggest = h
			}
		}
		if biggest == nil {
			return
		}
		biggest.shrink(biggest.bytes - max(m.historyBytes-most, biggest.bytes/shrinkShare))
	}
}

// shrinkShare is the divisor of the minimum part of the largest history that is dropped, so that not every write
// searches for the largest history.
const shrinkShare = 32

// weigh estimates the memory that only the event keeps: the object that was replaced or removed, and for a removal also
// the copy that Gone returns.
func (e *Event) weigh() int {
	const itself = 300
	n := itself + e.Old.weigh()
	if e.New == nil {
		n += e.Old.weigh()
	}
	return n
}

// Estimated memory of an object in addition to its struct and its strings, which are as long as its JSON: for each
// element of a list or field of a struct, and for each struct or map.
const (
	valueBytes  = 24
	structBytes = 32
)

// weigh estimates the memory of an entry. It is right within a factor of two or three.
func (e *Entry) weigh() int {
	switch {
	case e == nil:
		return 0
	case e.json == nil: // Compact
		return int(e.size())
	}
	n := 2 * len(e.json)
	if t := reflect.TypeOf(e.Object); t.Kind() == reflect.Pointer {
		n += int(t.Elem().Size())
	}
	return n + valueBytes*bytes.Count(e.json, []byte{','}) + structBytes*bytes.Count(e.json, []byte{'{'})
}
