package store

import (
	"fmt"
	"sync"
)

// Feed contains the last events of a resource. It implements Watch for a Store whose events come from elsewhere.
type Feed struct {
	mu      sync.RWMutex // guards the fields below
	history history
	seen    int64         // every event up to this revision was added
	wake    chan struct{} // closed and replaced whenever seen grows
}

// NewFeed returns a feed for the events after rev. cfg limits its history.
func NewFeed(cfg Config, rev int64) *Feed {
	return &Feed{history: newHistory(rev, cfg, new(int)), seen: rev, wake: make(chan struct{})}
}

// Add appends events, in order, and records that all events up to seen were added. Watches without matching events get
// Progress up to seen.
func (f *Feed) Add(seen int64, events ...*Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ev := range events {
		f.history.add(ev)
	}
	f.seen = max(f.seen, seen)
	f.wakeFollowers()
}

// Reset drops all events, because events up to rev are missing. Watches that have not read up to rev get Lagged.
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

// Follow implements Store's Watch. closed is closed when the store closes. If rev is in the future, the watch begins
// when it is reached.
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
