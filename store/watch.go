package store

import (
	"context"
	"fmt"
)

const (
	// watchBatch is the number of events that a watch takes from the history at once.
	watchBatch = 32
	// progressEvery is the number of skipped events after which a watch sends Progress.
	progressEvery = 256
)

// Watch implements Store.
func (m *Memory) Watch(_ context.Context, sel Selector, rev int64) (*Changes, error) {
	m.mu.Lock()
	t := m.table(sel.Resource)
	now, floor := m.rev, t.history.floor
	m.mu.Unlock()
	switch {
	case m.stopped.Err() != nil:
		return nil, ErrClosed
	case rev > now:
		return nil, fmt.Errorf("%s: revision %d is after %d: %w", sel.Resource, rev, now, ErrFuture)
	case rev < floor:
		return nil, fmt.Errorf("%s: revision %d is before %d: %w", sel.Resource, rev, floor, ErrExpired)
	}
	return &Changes{memory: m, table: t, closed: m.stopped.Done(), sel: sel, rev: rev}, nil
}

// Forget drops the history up to rev and returns the newest revision, for the next call. When it is called every five
// minutes with the last result, as much history is kept as in the etcd of a kube-apiserver (upstream:
// --etcd-compaction-interval), and none in an idle store. Watches that have read everything continue; lists at an
// earlier revision return ErrExpired.
func (m *Memory) Forget(rev int64) (newest int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tables {
		t.history.forget(rev)
	}
	m.forgottenRev = max(m.forgottenRev, rev)
	return m.rev
}

// Changes is a watch, from which the reader takes the changes: there is no goroutine. Only one goroutine may use it at
// a time.
type Changes struct {
	memory  *Memory // used if feed is nil
	table   *table
	feed    *Feed
	closed  <-chan struct{} // of the store
	sel     Selector
	rev     int64 // everything up to here was read or skipped
	skipped int   // events skipped since the last one that was read
}

// Read appends available changes to buf, at most watchBatch. If there are no more, it also returns a channel that is
// closed when there may be more. open is false when the reader has fallen behind the history; then the last event is
// Lagged. A selector that panics also ends its watch with Lagged.
func (c *Changes) Read(buf []*Event) (events []*Event, wake <-chan struct{}, open bool) {
	events = buf
	defer func() {
		if recover() != nil { // in the selector's Match, which a new list also calls
			events, wake, open = append(events, &Event{}), nil, false
		}
	}()
	var batch [watchBatch]*Event
	n, seen, wake, inHistory := c.next(batch[:])
	if !inHistory {
		return append(events, &Event{}), nil, false
	}
	for _, ev := range batch[:n] {
		c.rev = ev.Rev
		if c.skipped++; c.sel.touches(ev) {
			events = append(events, ev)
			c.skipped = 0
		} else if c.skipped == progressEvery {
			events = append(events, &Event{Rev: ev.Rev})
			c.skipped = 0
		}
	}
	if n == len(batch) {
		return events, nil, true
	}
	if seen > c.rev || c.sel.Progress && c.skipped > 0 {
		c.rev, c.skipped = max(seen, c.rev), 0
		events = append(events, &Event{Rev: c.rev})
	}
	return events, wake, true
}

// next copies the next events into buf. wake is closed when there are more; all events up to seen were added. inHistory
// is false if some events are no longer in the history.
func (c *Changes) next(buf []*Event) (n int, seen int64, wake <-chan struct{}, inHistory bool) {
	if c.feed != nil {
		return c.feed.read(c.rev, buf)
	}
	c.memory.mu.RLock()
	defer c.memory.mu.RUnlock()
	events, inHistory := c.table.history.after(c.rev)
	return copy(buf, events), 0, c.table.wake, inHistory
}

// Closed returns a channel that is closed when the store closes.
func (c *Changes) Closed() <-chan struct{} { return c.closed }

// Each calls do with every change, in order, until do returns false, ctx ends, the store closes, or the reader has
// fallen behind the history.
func (c *Changes) Each(ctx context.Context, do func(*Event) bool) {
	for {
		events, wake, open := c.Read(nil)
		for _, ev := range events {
			if !do(ev) {
				return
			}
		}
		if !open {
			return
		}
		if wake == nil {
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return
		case <-c.closed:
			return
		}
	}
}

// touches reports whether the selector matches the object before or after the event.
func (s Selector) touches(ev *Event) bool {
	return (s.Namespace == "" || s.Namespace == ev.Key.Namespace) &&
		(s.Name == "" || s.Name == ev.Key.Name) &&
		(s.Matches(ev.Old) || s.Matches(ev.New))
}

// Matches reports whether the selector's Match accepts the entry; false for nil.
func (s Selector) Matches(e *Entry) bool {
	return e != nil && (s.Match == nil || s.Match(e.Object))
}
