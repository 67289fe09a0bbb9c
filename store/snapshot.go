package store

import (
	"fmt"
	"slices"
	"strings"
)

// snapshot returns the entries that match sel's namespace, name and position, at one
// revision.
func (m *Memory) snapshot(sel Selector) ([]*Entry, int64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	t := m.tables[sel.Resource]
	if sel.At == 0 || sel.At == m.rev {
		return t.present(sel), m.rev, nil
	}
	if sel.At > m.rev {
		return nil, 0, fmt.Errorf("%s: revision %d is after %d: %w", sel.Resource, sel.At, m.rev, ErrFuture)
	}
	past, ok := t.undo(sel.At)
	if !ok || sel.At < m.forgotten {
		return nil, 0, fmt.Errorf("%s: revision %d is too long ago: %w", sel.Resource, sel.At, ErrExpired)
	}
	return rewind(t.present(sel), past, sel), sel.At, nil
}

// present returns the current entries for sel's keys.
func (t *table) present(sel Selector) []*Entry {
	if t == nil {
		return nil
	}
	var out []*Entry
	if sel.Namespace == "" && sel.After == "" {
		out = make([]*Entry, 0, t.entries.Len())
	}
	t.entries.Ascend(sel.from(), func(_ string, e *Entry) bool {
		if sel.Namespace != "" && e.Key.Namespace != sel.Namespace {
			return false
		}
		if sel.selectsKey(e.Key) {
			out = append(out, e)
		}
		return true
	})
	return out
}

// from is the first key that sel can select.
func (s Selector) from() string {
	from := ""
	if s.Namespace != "" {
		from = s.Namespace + "/"
	}
	return max(from, s.After)
}

func (s Selector) selectsKey(k Key) bool {
	return (s.Namespace == "" || s.Namespace == k.Namespace) &&
		(s.Name == "" || s.Name == k.Name) &&
		(s.After == "" || path(k) > s.After)
}

// undo returns, for each key that changed after rev, its entry at rev (nil if it had
// none), or false if the history does not reach back to rev.
func (t *table) undo(rev int64) (map[Key]*Entry, bool) {
	if t == nil {
		return nil, true
	}
	events, ok := t.history.after(rev)
	past := make(map[Key]*Entry, len(events))
	for _, ev := range events {
		if _, known := past[ev.Key]; !known { // the first change holds the entry before it
			past[ev.Key] = ev.Old
		}
	}
	return past, ok
}

// rewind replaces present entries by past ones.
func rewind(present []*Entry, past map[Key]*Entry, sel Selector) []*Entry {
	out := slices.DeleteFunc(present, func(e *Entry) bool {
		_, changed := past[e.Key]
		return changed
	})
	for k, e := range past {
		if e != nil && sel.selectsKey(k) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *Entry) int { return strings.Compare(path(a.Key), path(b.Key)) })
	return out
}
