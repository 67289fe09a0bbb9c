package store

import (
	"context"
	"fmt"
)

const (
	// watchBatch is how many events a watch takes from the history at once.
	watchBatch = 32
	// progressEvery is how many events a watch skips before it sends Progress to its
	// reader.
	progressEvery = 256
)

// Watch implements Store.
func (m *Memory) Watch(ctx context.Context, sel Selector, rev int64) (<-chan *Event, error) {
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
	return follow(ctx, tableOf{m, t}, m.stopped.Done(), sel, rev), nil
}

// Forget drops the history up to rev and returns the newest revision, for the next
// call. Called every five minutes with the last result, it keeps as much history as a
// kube-apiserver's etcd (upstream: --etcd-compaction-interval), and none in an idle
// store. Watches that have read everything continue.
func (m *Memory) Forget(rev int64) (newest int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tables {
		t.history.forget(rev)
	}
	return m.rev
}

// source is a history that grows.
type source interface {
	// read copies the next events after rev into buf. wake is closed when there are
	// more; every event up to seen is known. inReach is false if some have left the
	// history.
	read(rev int64, buf []*Event) (n int, seen int64, wake <-chan struct{}, inReach bool)
}

// tableOf is the history of a table of m.
type tableOf struct {
	m *Memory
	t *table
}

// read implements source.
func (s tableOf) read(rev int64, buf []*Event) (int, int64, <-chan struct{}, bool) {
	s.m.mu.RLock()
	defer s.m.mu.RUnlock()
	events, inReach := s.t.history.after(rev)
	return copy(buf, events), 0, s.t.wake, inReach
}

// follower reads a history from its own position.
type follower struct {
	from    source
	stopped <-chan struct{}
	sel     Selector
	rev     int64 // everything up to here was sent or skipped
	passed  int   // events skipped since the last one sent
	out     chan<- *Event
}

// follow sends the events after rev until ctx ends, stopped is closed, or the reader
// lags. A selector that panics ends its own watch as lagged.
func follow(ctx context.Context, from source, stopped <-chan struct{}, sel Selector, rev int64) <-chan *Event {
	out := make(chan *Event)
	f := &follower{from: from, stopped: stopped, sel: sel, rev: rev, out: out}
	go f.run(ctx)
	return out
}

func (f *follower) run(ctx context.Context) {
	defer close(f.out)
	defer func() {
		if recover() != nil { // in the selector's Match, which a new list also calls
			f.send(ctx, &Event{})
		}
	}()
	for {
		more, wake, ok := f.step(ctx)
		if !ok {
			return
		}
		if more {
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return
		case <-f.stopped:
			return
		}
	}
}

// step sends up to a batch of events after f.rev. ok is false when the watch is over.
// The buffer is freed when there is no work, which keeps an idle watch small.
func (f *follower) step(ctx context.Context) (more bool, wake <-chan struct{}, ok bool) {
	var buf [watchBatch]*Event
	n, seen, wake, inReach := f.from.read(f.rev, buf[:])
	if !inReach {
		f.send(ctx, &Event{})
		return false, nil, false
	}
	for _, ev := range buf[:n] {
		f.rev = ev.Rev
		if !f.offer(ctx, ev) {
			return false, nil, false
		}
	}
	if n == 0 && f.sel.Progress && f.passed > 0 {
		seen = max(seen, f.rev)
		f.rev, f.passed = seen, 0
		return false, wake, f.send(ctx, &Event{Rev: seen})
	}
	if n == 0 && seen > f.rev {
		f.rev, f.passed = seen, 0
		return false, wake, f.send(ctx, &Event{Rev: seen})
	}
	return n > 0, wake, true
}

// offer sends ev if it matches; false ends the watch.
func (f *follower) offer(ctx context.Context, ev *Event) bool {
	if f.sel.touches(ev) {
		f.passed = 0
		return f.send(ctx, ev)
	}
	if f.passed++; f.passed < progressEvery {
		return true
	}
	f.passed = 0
	return f.send(ctx, &Event{Rev: ev.Rev})
}

func (f *follower) send(ctx context.Context, ev *Event) bool {
	select {
	case f.out <- ev:
		return true
	case <-ctx.Done():
		return false
	case <-f.stopped:
		return false
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
