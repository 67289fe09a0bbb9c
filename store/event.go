package store

import (
	"reflect"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type lazyEntry struct {
	once  sync.Once
	entry *Entry
}

// Lagged reports whether the watch ended because its reader was too slow: its
// revision has left the history.
func (e *Event) Lagged() bool { return e.Rev == 0 }

// Progress reports whether the event only says that the watch has seen everything up
// to e.Rev.
func (e *Event) Progress() bool { return e.Rev != 0 && e.Old == nil && e.New == nil }

// Gone is the old entry as the event left it: the last state of the object, with the
// event's revision. Watchers receive it when an object is removed or stops matching.
// It is created once and shared.
func (e *Event) Gone() *Entry {
	e.gone.once.Do(func() {
		obj := ownMetadata(e.Old.Object)
		obj.SetResourceVersion(strconv.FormatInt(e.Rev, 10))
		e.gone.entry = e.Old.at(e.Rev, obj)
	})
	return e.gone.entry
}

// ownMetadata returns a copy of a shared object for another resourceVersion. What else it holds stays shared: to copy
// all of a pod costs more than the rest of its removal. Objects without a Go type of their own are copied as a whole.
func ownMetadata(obj Object) Object {
	was, ok := metadata(obj)
	if _, compact := obj.(Compact); !ok || compact {
		return obj.DeepCopyObject().(Object)
	}
	next := reflect.New(reflect.TypeOf(obj).Elem())
	next.Elem().Set(reflect.ValueOf(obj).Elem())
	out := next.Interface().(Object)
	if is, _ := metadata(out); is == was { // it holds a pointer
		return obj.DeepCopyObject().(Object)
	}
	return out
}

// metadata returns the metadata of an object that is a pointer to a struct.
func metadata(obj Object) (*metav1.ObjectMeta, bool) {
	a, ok := obj.(metav1.ObjectMetaAccessor)
	if !ok || reflect.TypeOf(obj).Kind() != reflect.Pointer {
		return nil, false
	}
	meta, ok := a.GetObjectMeta().(*metav1.ObjectMeta)
	return meta, ok
}

// at returns the entry with obj, its object at another revision.
func (e *Entry) at(rev int64, obj Object) *Entry {
	out := &Entry{Key: e.Key, Rev: rev, Object: obj}
	if _, compact := obj.(Compact); !compact {
		out.json = atRevision(e.json, rev)
	}
	return out
}
