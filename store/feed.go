package store

import (
	"context"
	"fmt"
	"sync"
)

// Feed is the last events of one resource and those who follow them: the Watch
// of a Store whose events come from elsewhere.
type Feed struct {
	mu      sync.RWMutex // guards what follows
	history history
	seen    int64         // everything up to here is known
	wake    chan struct{} // closed and replaced whenever seen grows
}

// NewFeed makes a feed that knows everything after rev, and keeps as much of it
// as cfg says (see NewMemory).
func NewFeed(cfg Config, rev int64) *Feed {
	return &Feed{history: newHistory(rev, cfg.History, cfg.HistoryBytes), seen: rev, wake: make(chan struct{})}
}

// Add appends events, in order, after which everything up to seen is known.
// Those who follow and had nothing to read are told Progress up to seen.
func (f *Feed) Add(seen int64, events ...*Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ev := range events {
		f.history.add(ev)
	}
	f.seen = max(f.seen, seen)
	f.awake()
}

// Reset forgets all events: it is not known what happened up to rev. Who had not
// read up to there lags.
func (f *Feed) Reset(rev int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history = newHistory(rev, f.history.maxCount, f.history.maxBytes)
	f.seen = max(f.seen, rev)
	f.awake()
}

func (f *Feed) awake() {
	close(f.wake)
	f.wake = make(chan struct{})
}

// Follow is Watch as Store describes it, until ctx ends or stopped is closed. A
// rev in the future waits for it.
func (f *Feed) Follow(ctx context.Context, stopped <-chan struct{}, sel Selector, rev int64) (<-chan *Event, error) {
	f.mu.RLock()
	floor := f.history.floor
	f.mu.RUnlock()
	if rev < floor {
		return nil, fmt.Errorf("%s: revision %d is before %d: %w", sel.Resource, rev, floor, ErrExpired)
	}
	return follow(ctx, f, stopped, sel, rev), nil
}

// read implements source.
func (f *Feed) read(rev int64, buf []*Event) (int, int64, <-chan struct{}, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	events, inReach := f.history.after(rev)
	return copy(buf, events), f.seen, f.wake, inReach
}
