package store

import (
	"fmt"
	"slices"
	"strings"
)

// snapshot returns the entries that match sel, except for sel.Match, at the returned revision.
func (m *Memory) snapshot(sel Selector) ([]*Entry, int64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	t := m.tables[sel.Resource]
	if sel.At == 0 || sel.At == m.rev {
		return t.current(sel), m.rev, nil
	}
	if sel.At > m.rev {
		return nil, 0, fmt.Errorf("%s: revision %d is after %d: %w", sel.Resource, sel.At, m.rev, ErrFuture)
	}
	past, ok := t.entriesAt(sel.At)
	if !ok || sel.At < m.forgottenRev {
		return nil, 0, fmt.Errorf("%s: revision %d is too long ago: %w", sel.Resource, sel.At, ErrExpired)
	}
	if len(past) == 0 {
		return t.current(sel), sel.At, nil
	}
	sel.Limit = 0 // it limits past entries, not the current ones
	return rewind(t.current(sel), past, sel), sel.At, nil
}

// current returns the current entries that match sel, except for sel.Match. If sel.Match is nil, sel.Limit applies.
func (t *table) current(sel Selector) []*Entry {
	if t == nil {
		return nil
	}
	var out []*Entry
	from, end := sel.pathRange()
	t.entries.Ascend(from, func(at string, e *Entry) bool {
		if end != "" && at >= end || sel.Limit > 0 && sel.Match == nil && len(out) == sel.Limit {
			return false
		}
		if sel.Name == "" || e.Key.Name == sel.Name {
			out = append(out, e)
		}
		return true
	})
	return out
}

// pathRange returns the range of paths that sel can select: from is included, end is not. Empty: there is no bound.
func (s Selector) pathRange() (from, end string) {
	if s.Namespace != "" {
		from, end = s.Namespace+"/", s.Namespace+"0" // which follows the slash
	}
	if s.Namespace != "" && s.Name != "" {
		from = path(Key{Namespace: s.Namespace, Name: s.Name})
		end = from + "\x00"
	}
	if s.After != "" {
		from = max(from, s.After+"\x00")
	}
	return from, end
}

func (s Selector) selectsKey(k Key) bool {
	return (s.Namespace == "" || s.Namespace == k.Namespace) &&
		(s.Name == "" || s.Name == k.Name) &&
		(s.After == "" || path(k) > s.After)
}

// entriesAt returns, for each key that changed after rev, its entry at rev, which is nil if there was none. It returns
// false if the history does not reach back to rev.
func (t *table) entriesAt(rev int64) (map[Key]*Entry, bool) {
	if t == nil {
		return nil, true
	}
	events, ok := t.history.after(rev)
	past := make(map[Key]*Entry, len(events))
	for _, ev := range events {
		if _, known := past[ev.Key]; !known { // the first change contains the entry at rev
			past[ev.Key] = ev.Old
		}
	}
	return past, ok
}

// rewind replaces the present entries of changed keys by the past ones.
func rewind(present []*Entry, past map[Key]*Entry, sel Selector) []*Entry {
	present = slices.DeleteFunc(present, func(e *Entry) bool {
		_, changed := past[e.Key]
		return changed
	})
	var back []*Entry
	for k, e := range past {
		if e != nil && sel.selectsKey(k) {
			back = append(back, e)
		}
	}
	slices.SortFunc(back, func(a, b *Entry) int { return strings.Compare(path(a.Key), path(b.Key)) })
	out := make([]*Entry, 0, len(present)+len(back))
	for _, e := range back { // merge both sorted lists
		at, _ := slices.BinarySearchFunc(present, path(e.Key),
			func(e *Entry, wanted string) int { return strings.Compare(path(e.Key), wanted) })
		out = append(append(out, present[:at]...), e)
		present = present[at:]
	}
	return append(out, present...)
}
