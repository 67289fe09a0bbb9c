package store

import "fmt"

// headroom is the part of a quota, one in so many, that is left to changes of existing objects when no more can be
// created: what runs keeps its status.
const headroom = 10

// revisionSize is more than what a resourceVersion adds to an object's JSON.
const revisionSize = 48

// quota bounds the JSON of all objects. It belongs to the writer.
type quota struct {
	max  int64 // bytes; 0: no limit
	used  int64 // by what is published
	pending int64 // by the batch so far
}

// reserve adds what a write adds. It fails with ErrNoSpace if that is too much; removals, steps towards one, what shrinks,
// and volatile writes, which expire, are never too much.
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

// size is Size; 0 for none.
func (e *Entry) size() int64 {
	if e == nil {
		return 0
	}
	n, _ := e.Size()
	return int64(n)
}
