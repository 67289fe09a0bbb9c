package store

import (
	"fmt"
	"sync"
)

// Feed holds the last events of one resource and serves its followers: it implements
// Watch for a Store whose events come from elsewhere.
type Feed struct {
	mu      sync.RWMutex // guards the fields below
	history history
	seen    int64         // everything up to here is known
	wake    chan struct{} // closed and replaced whenever seen grows
}

// NewFeed returns a feed that knows every event after rev, with a history bounded by
// cfg (see NewMemory).
func NewFeed(cfg Config, rev int64) *Feed {
	return &Feed{history: newHistory(rev, cfg, new(int)), seen: rev, wake: make(chan struct{})}
}

// Add appends events, in order; every event up to seen is then known. Followers
// without matching events get Progress up to seen.
func (f *Feed) Add(seen int64, events ...*Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ev := range events {
		f.history.add(ev)
	}
	f.seen = max(f.seen, seen)
	f.wakeFollowers()
}

// Reset drops all events, because those up to rev are unknown. Followers that have
// not read up to rev lag.
func (f *Feed) Reset(rev int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history = newHistory(rev, Config{History: f.history.maxCount, HistoryBytes: f.history.maxBytes}, new(int))
	f.seen = max(f.seen, rev)
	f.wakeFollowers()
}

func (f *Feed) wakeFollowers() {
	close(f.wake)
	f.wake = make(chan struct{})
}

// Follow implements Store's Watch for a store that closes closed. A revision in the
// future is waited for.
func (f *Feed) Follow(closed <-chan struct{}, sel Selector, rev int64) (*Changes, error) {
	f.mu.RLock()
	floor := f.history.floor
	f.mu.RUnlock()
	if rev < floor {
		return nil, fmt.Errorf("%s: revision %d is before %d: %w", sel.Resource, rev, floor, ErrExpired)
	}
	return &Changes{feed: f, closed: closed, sel: sel, rev: rev}, nil
}

// read copies the next events after rev into buf; see Changes.next.
func (f *Feed) read(rev int64, buf []*Event) (int, int64, <-chan struct{}, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	events, inReach := f.history.after(rev)
	return copy(buf, events), f.seen, f.wake, inReach
}
