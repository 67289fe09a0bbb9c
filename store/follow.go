package store

import (
	"cmp"
	"context"
	"slices"
	"sort"
)

// follower is a reader of a table that the history cannot leave behind: changes that leave the history before it has
// read them are merged. The writer changes it under m.mu, its reader under m.mu for reading.
type follower struct {
	table  *table
	rev    int64             // everything up to here was read
	missed map[string]*Entry // by path, what changed and left the history since: its entry at rev, nil for none
}

// Follow calls list with what sel selects and the revision, then each with every later change that touches it, in order
// and on the caller's goroutine, until ctx ends or the store closes. A reader that falls behind the history sees the sum
// of what it missed: one event for each key, removals first. After some events, each gets Progress up to the last
// of them, which must not be kept.
func (m *Memory) Follow(ctx context.Context, sel Selector, list func(entries []*Entry, rev int64), each func(*Event)) error {
	if m.stopped.Err() != nil {
		return ErrClosed
	}
	f, entries := m.follow(sel)
	defer m.unfollow(f)
	list(slices.DeleteFunc(entries, func(e *Entry) bool { return !sel.Matches(e) }), f.rev)
	reached := &Event{Rev: f.rev}
	for ctx.Err() == nil {
		events, wake := m.unread(f)
		for _, ev := range events {
			if sel.touches(ev) {
				each(ev)
			}
		}
		if f.rev > reached.Rev {
			reached.Rev = f.rev
			each(reached)
		}
		if wake == nil {
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
		case <-m.stopped.Done():
			return nil
		}
	}
	return nil
}

// follow adds a follower, and returns the entries from which it starts.
func (m *Memory) follow(sel Selector) (*follower, []*Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table(sel.Resource)
	f := &follower{table: t, rev: m.rev}
	t.followers = append(t.followers, f)
	return f, t.present(sel)
}

func (m *Memory) unfollow(f *follower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.table.followers = slices.DeleteFunc(f.table.followers, func(other *follower) bool { return other == f })
}

// unread returns the next events for f. If there are no more, it also returns a channel that is closed when there are.
func (m *Memory) unread(f *follower) (events []*Event, wake <-chan struct{}) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	t := f.table
	next, inReach := t.history.after(f.rev)
	if !inReach {
		return f.merged(), nil
	}
	events = slices.Clone(next[:min(len(next), watchBatch)])
	if len(events) > 0 {
		f.rev = events[len(events)-1].Rev
	}
	if len(events) == len(next) {
		wake = t.wake
	}
	return events, wake
}

// leaves merges an event that leaves the history into what the followers have missed.
func (t *table) leaves(ev *Event) {
	for _, f := range t.followers {
		if f.rev < ev.Rev {
			f.miss(ev)
		}
	}
}

func (f *follower) miss(ev *Event) {
	at := path(ev.Key)
	old, again := f.missed[at]
	switch {
	case again && old == nil && ev.New == nil: // created and removed
		delete(f.missed, at)
	case !again:
		if f.missed == nil {
			f.missed = map[string]*Entry{}
		}
		f.missed[at] = ev.Old
	}
}

// merged returns the sum of all changes that f has not read.
func (f *follower) merged() []*Event {
	t := f.table
	rest := t.history.events
	for _, ev := range rest[sort.Search(len(rest), func(i int) bool { return rest[i].Rev > f.rev }):] {
		f.miss(ev)
	}
	events := make([]*Event, 0, len(f.missed))
	for at, old := range f.missed {
		now, _ := t.entries.Get(at)
		if old == nil && now == nil {
			continue
		}
		events = append(events, &Event{Key: cmp.Or(now, old).Key, Rev: t.newest, Old: old, New: now})
	}
	slices.SortFunc(events, func(a, b *Event) int {
		return cmp.Or(cmp.Compare(a.New.revision(), b.New.revision()), cmp.Compare(path(a.Key), path(b.Key)))
	})
	f.rev, f.missed = t.newest, nil
	return events
}

// revision is e's, 0 for none.
func (e *Entry) revision() int64 {
	if e == nil {
		return 0
	}
	return e.Rev
}
