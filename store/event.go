package store

import (
	"strconv"
	"sync"
)

type lazyEntry struct {
	once  sync.Once
	entry *Entry
}

// Lagged reports whether the watch ended because its reader was too slow: the next events are no longer in the history.
func (e *Event) Lagged() bool { return e.Rev == 0 }

// Progress reports whether the event is only a progress notification: the watch has passed all events up to e.Rev.
func (e *Event) Progress() bool { return e.Rev != 0 && e.Old == nil && e.New == nil }

// Gone returns the last state of the object with the revision of the event. Watchers receive it when an object is
// removed or stops matching. It is created once and shared.
func (e *Event) Gone() *Entry {
	e.gone.once.Do(func() {
		obj := e.Old.Object.DeepCopyObject().(Object)
		obj.SetResourceVersion(strconv.FormatInt(e.Rev, 10))
		e.gone.entry = e.Old.at(e.Rev, obj)
	})
	return e.gone.entry
}

// at returns the entry at another revision. obj is its object, which already has the revision.
func (e *Entry) at(rev int64, obj Object) *Entry {
	out := &Entry{Key: e.Key, Rev: rev, Object: obj}
	if _, compact := obj.(Compact); !compact {
		out.json = atRevision(e.json, rev)
	}
	return out
}
