package store

import "fmt"

// headroom is the divisor of the part of a quota by which existing objects may exceed it, so that running pods can
// update their status when nothing more can be created.
const headroom = 10

// revisionSize is more than the length that a resourceVersion adds to an object's JSON.
const revisionSize = 48

// quota limits the JSON of all objects. Only the writer uses it.
type quota struct {
	max     int64 // bytes; 0: no limit
	used    int64 // by what is published
	pending int64 // by the batch so far
}

// reserve adds the growth by a write. It returns ErrNoSpace if the quota is exceeded. Deletions, writes that make an
// object smaller, and volatile writes, which expire, are always allowed.
func (q *quota) reserve(w *write) error {
	grows := int64(len(w.plain)) + revisionSize - w.cur.size()
	most := q.max
	if w.cur != nil {
		most += most / headroom
	}
	if q.max > 0 && w.next != nil && grows > 0 && !w.volatile && !w.deletes() && q.used+q.pending+grows > most {
		return fmt.Errorf("%w: all objects together have reached %d MiB of JSON (--max-state-size): delete some", ErrNoSpace,
			q.max>>20)
	}
	if w.next != nil {
		q.pending += grows
	}
	return nil
}

// size returns Size; 0 if e is nil.
func (e *Entry) size() int64 {
	if e == nil {
		return 0
	}
	n, _ := e.Size()
	return int64(n)
}
