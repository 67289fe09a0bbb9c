package store

import (
	"strconv"
	"sync"
)

type lazyEntry struct {
	once  sync.Once
	entry *Entry
}

// Lagged says that the watch ended because its reader was too slow: the
// revision it stood at left the history.
func (e *Event) Lagged() bool { return e.Rev == 0 }

// Progress says that nothing happened to what is watched, up to e.Rev.
func (e *Event) Progress() bool { return e.Rev != 0 && e.Old == nil && e.New == nil }

// Gone is the old entry as the event left it: the last state of the object,
// with the event's revision. It is what a watcher is told when an object is
// removed or stops matching. Made once, shared.
func (e *Event) Gone() *Entry {
	e.gone.once.Do(func() {
		obj := e.Old.Object.DeepCopyObject().(Object)
		obj.SetResourceVersion(strconv.FormatInt(e.Rev, 10))
		e.gone.entry = &Entry{Key: e.Key, Rev: e.Rev, Object: obj, JSON: withRevision(withoutRevision(e.Old.JSON), e.Rev)}
	})
	return e.gone.entry
}
