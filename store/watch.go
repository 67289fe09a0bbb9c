package store

import (
	"context"
	"fmt"
)

const (
	// watchBatch is how many events a watch takes from the history at once.
	watchBatch = 32
	// progressEvery is how many events a watch passes over before it tells its
	// reader how far it is.
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
	out := make(chan *Event)
	f := &follower{m: m, t: t, sel: sel, rev: rev, out: out}
	go f.run(ctx)
	return out, nil
}

// follower reads the history of one table from its own place in it.
type follower struct {
	m      *Memory
	t      *table
	sel    Selector
	rev    int64 // everything up to here was sent or passed over
	passed int   // events passed over since the last one sent
	out    chan<- *Event
}

func (f *follower) run(ctx context.Context) {
	defer close(f.out)
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
		case <-f.m.stopped.Done():
			return
		}
	}
}

// step sends what the history holds after f.rev, up to a batch. ok is false
// when the watch is over. Its buffer lives only as long as there is work, which
// keeps a quiet watch small.
func (f *follower) step(ctx context.Context) (more bool, wake <-chan struct{}, ok bool) {
	var buf [watchBatch]*Event
	f.m.mu.RLock()
	events, inReach := f.t.history.after(f.rev)
	n := copy(buf[:], events)
	wake = f.t.wake
	f.m.mu.RUnlock()
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
	return n > 0, wake, true
}

// offer sends ev if it is of interest; false ends the watch.
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
	case <-f.m.stopped.Done():
		return false
	}
}

// touches says whether the event is about something the selector selects,
// before or after it.
func (s Selector) touches(ev *Event) bool {
	return (s.Namespace == "" || s.Namespace == ev.Key.Namespace) &&
		(s.Name == "" || s.Name == ev.Key.Name) &&
		(s.Matches(ev.Old) || s.Matches(ev.New))
}

// Matches says whether the selector's Match takes the entry; false for nil.
func (s Selector) Matches(e *Entry) bool {
	return e != nil && (s.Match == nil || s.Match(e.Object))
}
