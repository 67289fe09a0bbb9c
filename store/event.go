package store

import (
	"strconv"
	"sync"
)

type lazyEntry struct {
	once  sync.Once
	entry *Entry
}

// Lagged says that the watch ended because its reader was too slow, or the
// revision it stood at left the history.
func (e *Event) Lagged() bool { return e.Old == nil && e.New == nil }

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
