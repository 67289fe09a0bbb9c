// Package store keeps the state of the cluster.
//
// A Store maps a Key to an Object and numbers every change with a revision, an int64 that only grows and is shared by
// all resources. Four nouns:
//
//   - Entry: an object at a revision, with its JSON.
//   - Event: a change, with the old and the new entry.
//   - Selector: selects the objects of a List or Watch.
//   - Change: a function from the current object to the next, the only way to write.
//
// Memory keeps all objects in memory and serves every read; package bolt makes it durable.
//
// Objects from a Store are shared by all readers and must not be modified. Copy first
// (DeepCopyObject), then change the copy.
package store

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Errors a Store returns, wrapped with the key.
var (
	// ErrNotFound: there is no object at the key.
	ErrNotFound = errors.New("not found")
	// ErrExpired: the requested revision is older than the history; list again.
	ErrExpired = errors.New("revision expired")
	// ErrFuture: the requested revision does not exist yet.
	ErrFuture = errors.New("revision is in the future")
	// ErrClosed: the store is closed.
	ErrClosed = errors.New("store closed")
	// ErrNoSpace: the backing storage is full, or MaxBytes is reached; nothing was written. The error that wraps it
	// contains a remedy.
	ErrNoSpace = errors.New("no space left for writing")
	// ErrLost: records that a Log had committed are lost.
	ErrLost = errors.New("the durable state was removed or replaced")
	// ErrUnavailable: the backing storage does not answer. A write may or may not have happened.
	ErrUnavailable = errors.New("the store does not answer")
)

// Object is a Kubernetes object: a pointer to a typed struct.
type Object interface {
	runtime.Object
	metav1.Object
}

// Key identifies an object. Resource is the plural ("pods", "replicasets"). It contains the group for custom resources,
// their definitions and APIServices ("widgets.example.com"), because several groups may have the same plural. Namespace
// is empty for cluster-scoped objects.
type Key struct {
	Resource, Namespace, Name string
}

// String returns resource/namespace/name, or resource/name without a namespace.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Resource + "/" + k.Name
	}
	return k.Resource + "/" + k.Namespace + "/" + k.Name
}

// Entry is an object at a revision. It is shared and immutable.
type Entry struct {
	Key    Key
	Rev    int64  // revision of the write; also in Object's resourceVersion
	Object Object // shared: copy before changing
	json   []byte // JSON of Object with its resourceVersion; nil for a stored Compact object
}

// Event is a change. Old is nil for a creation, New is nil for a removal. Both are nil for Lagged and Progress.
type Event struct {
	Key      Key
	Rev      int64
	Old, New *Entry

	weight int // bytes of memory that the history counts
	gone   lazyEntry
}

// Selector selects the objects of a List or Watch. The zero value of each field
// selects everything.
type Selector struct {
	Resource  string            // required
	Namespace string            // empty: all namespaces
	Name      string            // empty: all names
	Match     func(Object) bool // nil: all objects; must be pure

	// Progress is for Watch: an event with progress is sent whenever the watch has skipped changes and becomes idle, not
	// only after many skipped changes.
	Progress bool

	// The fields below are for List: the objects at revision At (0: now), after the object After ("namespace/name"; empty:
	// from the first), at most Limit of them (0: all).
	At    int64
	After string
	Limit int
}

// Change computes the next object from the current one. cur is nil if there is no object at the key. If Change returns
// nil, the object is removed. If it returns cur, or an object with the same JSON, nothing is written. A Change may be
// called more than once and must not modify cur.
type Change func(cur Object) (next Object, err error)

// Durability defines whether a write must survive a power failure.
type Durability int

// The durabilities.
const (
	Durable  Durability = iota // on disk before the call returns
	Volatile                   // in memory only: leases, events, heartbeats
)

// Kind describes a resource.
type Kind struct {
	New func() Object
	// Durability returns the durability of a write; nil: every write is Durable. cur is nil for a creation, next is nil
	// for a removal.
	Durability func(cur, next Object) Durability
}

// Store is the state of the cluster.
type Store interface {
	// Get returns the entry at key, or ErrNotFound.
	Get(ctx context.Context, key Key) (*Entry, error)

	// List returns the entries that sel selects, ordered by "namespace/name", at the returned revision: sel.At, or now. It
	// returns ErrExpired or ErrFuture if sel.At is not available.
	List(ctx context.Context, sel Selector) ([]*Entry, int64, error)

	// Watch returns the changes after rev, in order, of which sel selects the old object, the new one or both. The watch
	// ends when the store closes, or with the event Lagged when the reader has fallen behind the history. After many
	// skipped changes, it sends Progress. Watch returns ErrExpired or ErrFuture if rev is not available. ctx is for the
	// call only.
	Watch(ctx context.Context, sel Selector, rev int64) (*Changes, error)

	// Update is the only write. It calls change on the caller's goroutine, again if the object was changed meanwhile, and
	// returns the stored entry; for a removal, the last state with the revision of the removal. It returns errors of
	// change unwrapped, and ErrNotFound if cur and next are both nil.
	Update(ctx context.Context, key Key, change Change) (*Entry, error)

	// Revision returns the newest published revision.
	Revision() int64

	// Close stops writes, ends watches and releases the store's files and connections.
	Close() error
}
