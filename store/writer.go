package store

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
)

// maxBatch is the maximum number of writes in a commit, which limits the latency of the first one.
const maxBatch = 1024

// gather takes all queued writes. The caller has the writer's token. It yields first: otherwise, on one CPU, each write
// would have its own commit and fsync. Callers whose writes were in the last batch are likely to write again: while
// fewer writes are queued than in the last batch, gather yields to them, so that they share a commit again.
func (m *Memory) gather() []*write {
	runtime.Gosched()
	var batch []*write
	for patience := m.gathered; len(batch) < maxBatch; {
		select {
		case w := <-m.writes:
			batch = append(batch, w)
			continue
		default:
		}
		if patience--; patience < 1 || len(batch) >= m.gathered {
			break
		}
		runtime.Gosched()
	}
	m.gathered = len(batch)
	return batch
}

// errPanic is the error of writes whose batch ended with a panic.
var errPanic = errors.New("the write failed with a panic, its outcome is unknown")

// writeBatch commits, publishes and answers the queued writes, and returns the writer's token. Every write gets a
// result, even after a panic in an object or in the log.
func (m *Memory) writeBatch() {
	defer func() { <-m.writer }()
	batch := m.gather()
	last := m.rev + int64(len(batch))
	done := false
	defer func() {
		if !done {
			m.skip(last)
		}
		for _, w := range batch {
			if !done && w.err == nil {
				w.fail(errPanic)
			}
			close(w.done)
		}
	}()
	fresh := m.number(batch)
	err := m.commit(fresh)
	if errors.Is(err, ErrNoSpace) {
		fresh = m.number(onlyDeletes(fresh, err))
		err = m.commit(fresh)
	}
	if err == nil {
		m.publish(fresh)
	} else {
		for _, w := range fresh {
			w.fail(err)
		}
	}
	done = true
}

// onlyDeletes fails the writes that would grow the log and returns the others, for which there may still be room.
func onlyDeletes(fresh []*write, err error) []*write {
	var rest []*write
	for _, w := range fresh {
		if w.volatile || w.deletes() {
			rest = append(rest, w)
		} else {
			w.fail(err)
		}
	}
	return rest
}

func (w *write) fail(err error) { w.result, w.err = nil, fmt.Errorf("%v: %w", w.key, err) }

// deletes reports whether the write removes the object, or the object has a deletionTimestamp.
func (w *write) deletes() bool { return w.next == nil || w.next.GetDeletionTimestamp() != nil }

// number assigns a revision, an entry and an event to each write whose object has not changed meanwhile. Of two writes
// to a key in a batch, the second one is stale.
func (m *Memory) number(batch []*write) []*write {
	var fresh []*write
	touched := map[Key]bool{}
	m.quota.pending = 0
	rev := m.rev // only the writer changes it
	for _, w := range batch {
		if touched[w.key] || m.current(w.key) != w.cur {
			w.err = errStale
			continue
		}
		if err := m.quota.reserve(w); err != nil {
			w.fail(err)
			continue
		}
		touched[w.key] = true
		rev++
		w.number(rev)
		fresh = append(fresh, w)
	}
	return fresh
}

func (w *write) number(rev int64) {
	w.published = &Event{Key: w.key, Rev: rev, Old: w.cur}
	if w.next == nil {
		w.result = w.published.Gone()
		return
	}
	w.next.SetResourceVersion(strconv.FormatInt(rev, 10))
	w.result = newEntry(w.key, rev, w.next, w.plain)
	w.published.New = w.result
}

// commit commits the durable writes to the log, and reserves revisions.
func (m *Memory) commit(fresh []*write) error {
	if m.log == nil || len(fresh) == 0 {
		return nil
	}
	records := slices.Clone(m.volatileRemovals)
	for _, w := range fresh {
		if !w.volatile {
			records = append(records, w.record())
		}
	}
	reserved := m.reserved
	if last := fresh[len(fresh)-1].published.Rev; last > reserved {
		reserved = last + reserveBlock
	}
	if len(records) > len(m.volatileRemovals) || reserved != m.reserved {
		if err := m.append(records, reserved); err != nil {
			m.skip(fresh[len(fresh)-1].published.Rev)
			return err
		}
		m.reserved, m.volatileRemovals = reserved, nil
	}
	for _, w := range fresh {
		if w.volatile && w.next != nil {
			m.unsaved[w.key] = true
		} else {
			delete(m.unsaved, w.key)
		}
	}
	return nil
}

// append commits to the log. If the log has lost its records, it rewrites the log first.
func (m *Memory) append(records []Record, reserved int64) error {
	err := m.log.Commit(records, reserved)
	if !errors.Is(err, ErrLost) {
		return err
	}
	if err := m.rewrite(); err != nil {
		return err
	}
	return m.log.Commit(records, reserved)
}

// rewrite writes every durable object to the log.
func (m *Memory) rewrite() error {
	reserved := max(m.reserved, m.rev)
	if err := m.log.Rewrite(m.durable(), reserved); err != nil {
		return err
	}
	m.reserved, m.volatileRemovals = reserved, nil
	return nil
}

// durable returns a record of every durable object.
func (m *Memory) durable() []Record {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var records []Record
	for resource, t := range m.tables {
		kind, _ := m.cfg.Kind(resource)
		t.entries.Scan(func(_ string, e *Entry) bool {
			if !kind.volatile(nil, e.Object) {
				records = append(records, Record{Key: e.Key, Rev: e.Rev, JSON: e.JSON()})
			}
			return true
		})
	}
	return records
}

// record returns the write's record for the log.
func (w *write) record() Record {
	if w.next == nil {
		return Record{Key: w.key, Rev: w.published.Rev, Deletes: true}
	}
	encoded := w.result.json
	if encoded == nil {
		encoded = withRevision(w.plain, w.result.Rev)
	}
	return Record{Key: w.key, Rev: w.published.Rev, JSON: encoded, Deletes: w.deletes()}
}

// skip skips the revisions of a failed commit: a part of it may be on the disk, so they must not be used again.
func (m *Memory) skip(rev int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rev = rev
}

// publish makes fresh visible to readers and wakes the watchers.
func (m *Memory) publish(fresh []*write) {
	if len(fresh) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var grown []*table
	for _, w := range fresh {
		t := m.table(w.key.Resource)
		if w.next == nil {
			t.entries.Delete(path(w.key))
			m.quota.used -= w.cur.size()
		} else {
			t.entries.Set(path(w.key), w.result)
			m.quota.used += w.result.size() - w.cur.size()
		}
		m.rev, t.newest = w.published.Rev, w.published.Rev
		t.history.add(w.published)
		if !slices.Contains(grown, t) {
			grown = append(grown, t)
		}
	}
	m.shrinkHistories()
	for _, t := range grown {
		close(t.wake)
		t.wake = make(chan struct{})
	}
}

// closeLog saves volatile objects and the exact revision, from which the next start continues, and closes the log. If
// nothing was ever written to the log, it stays unchanged.
func (m *Memory) closeLog() error {
	if m.log == nil {
		return nil
	}
	var err error
	if m.reserved > 0 {
		records := m.volatileRemovals
		for k := range m.unsaved {
			if e := m.current(k); e != nil {
				records = append(records, Record{Key: k, Rev: e.Rev, JSON: e.JSON()})
			}
		}
		err = m.append(records, m.rev)
	}
	return errors.Join(err, m.log.Close())
}
