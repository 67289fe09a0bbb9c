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

// history is the last events of one resource, bounded by count and by the memory that
// they hold. It is guarded by its owner's mutex.
type history struct {
	events   []*Event // in revision order
	floor    int64    // every event after this revision is in events
	bytes    int      // weight of the events
	allBytes    *int     // bytes of all histories together
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

// shrink drops the first events until the others hold no more than that many bytes; the last one stays.
func (h *history) shrink(most int) {
	drop := 0
	for left := h.bytes; left > most && drop < len(h.events)-1; drop++ {
		left -= h.events[drop].weight
	}
	h.drop(drop)
}

// drop forgets the first n events.
func (h *history) drop(n int) {
	for i, ev := range h.events[:n] {
		h.floor = ev.Rev
		h.count(-ev.weight)
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

func (h *history) count(weight int) {
	h.bytes += weight
	*h.allBytes += weight
}

// shrinkHistories drops first events of the resources whose histories hold most, until all together hold no more than
// their limit: what changes seldom keeps its history. The caller holds m.mu.
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

// shrinkShare is the part of the largest history, one in so many, that goes at once at least: not every write searches
// it.
const shrinkShare = 32

// weigh estimates the memory that only the event keeps: the object that was replaced or removed, and of a removed one a
// copy with the revision of the removal.
func (e *Event) weigh() int {
	const itself = 300
	n := itself + e.Old.weigh()
	if e.New == nil {
		n += e.Old.weigh()
	}
	return n
}

// What an object takes beside its struct and its texts, which are as long as its JSON: for each value of a list or
// field of a struct, and for each struct or map.
const (
	valueBytes  = 24
	structBytes = 32
)

// weigh estimates the memory of an entry, within a factor of two or three for any object.
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
