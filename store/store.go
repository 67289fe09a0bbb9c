// Package store keeps the state of the cluster.
//
// A Store maps a Key to an Object and numbers every change with one revision,
// an int64 that only grows and is shared by all resources. Four nouns:
//
//   - Entry: one object at one revision, with its JSON encoded once.
//   - Event: one change, from the old entry to the new.
//   - Selector: the keys and objects that a List or Watch returns.
//   - Change: a function from the current object to the next, the only write.
//
// Memory holds everything and serves every read; package bolt makes it durable.
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
	// ErrNotFound: the key holds no object.
	ErrNotFound = errors.New("not found")
	// ErrExpired: the requested revision is older than the history; list again.
	ErrExpired = errors.New("revision expired")
	// ErrFuture: the requested revision does not exist yet.
	ErrFuture = errors.New("revision is in the future")
	// ErrClosed: the store is closed.
	ErrClosed = errors.New("store closed")
	// ErrNoSpace: the backing storage is full, or MaxBytes is reached; nothing was written. The error that
	// wraps it says what to do.
	ErrNoSpace = errors.New("no space left for writing")
	// ErrLost: records that a Log had committed are gone.
	ErrLost = errors.New("the durable state was removed or replaced")
	// ErrUnavailable: the backing storage does not answer. A write may or may not
	// have happened.
	ErrUnavailable = errors.New("the store does not answer")
)

// Object is anything the API serves: a pointer to a typed Kubernetes object.
type Object interface {
	runtime.Object
	metav1.Object
}

// Key names an object. Resource is the plural as stored ("pods", "replicasets"),
// with its group where several groups may have the same plural: custom resources,
// their definitions and APIServices ("widgets.example.com"). Namespace is empty
// for cluster-scoped objects.
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

// Entry is one object at one revision. It is shared and immutable.
type Entry struct {
	Key    Key
	Rev    int64  // the revision of the write that made it; also in Object's resourceVersion
	Object Object // shared: copy before changing
	json   []byte // Object encoded, resourceVersion included; nil for a Compact object that is stored
}

// Event is one change. Old is nil for a creation; New is nil for a removal; both are
// nil for the markers Lagged and Progress.
type Event struct {
	Key      Key
	Rev      int64
	Old, New *Entry

	weight int // bytes of memory, as the history counts them
	gone   lazyEntry
}

// Selector selects the objects of a List or Watch. The zero value of each field
// selects everything.
type Selector struct {
	Resource  string            // required
	Namespace string            // empty: all namespaces
	Name      string            // empty: all names
	Match     func(Object) bool // nil: all objects; must be pure

	// Only for Watch: Progress is sent whenever the watch has skipped changes and
	// becomes idle, not only now and then.
	Progress bool

	// Only for List: the objects at revision At (0: now), after the object After
	// ("namespace/name", empty: from the first), at most Limit of them (0: all).
	At    int64
	After string
	Limit int
}

// Change computes the next object from the current one. cur is nil when the
// key holds nothing; returning nil removes the object; returning cur itself, or
// something that encodes to the same JSON, writes nothing. A Change may run
// more than once and must not modify cur.
type Change func(cur Object) (next Object, err error)

// Durability is whether a write must survive a power failure.
type Durability int

// The two classes of writes.
const (
	Durable  Durability = iota // on disk before the call returns
	Volatile                   // in memory only: leases, events, heartbeats
)

// Kind is what a Store needs to know about a resource.
type Kind struct {
	New func() Object
	// Durability of one write; nil means Durable. cur is nil for a creation, next
	// is nil for a removal.
	Durability func(cur, next Object) Durability
}

// Store is the state of the cluster.
type Store interface {
	// Get returns the entry at key, or ErrNotFound.
	Get(ctx context.Context, key Key) (*Entry, error)

	// List returns what sel selects, ordered by "namespace/name", as of the returned
	// revision: sel.At, or now. It fails with ErrExpired or ErrFuture if sel.At is
	// not available.
	List(ctx context.Context, sel Selector) ([]*Entry, int64, error)

	// Watch returns every change after rev that touches what sel selects, in order: the
	// old object, the new one or both match. They end when the store closes or the reader
	// falls behind the history; in the last case the final event is Lagged. A watch that
	// skips many changes has Progress now and then. It fails with ErrExpired or ErrFuture
	// if rev is not available. ctx is for the call only.
	Watch(ctx context.Context, sel Selector, rev int64) (*Changes, error)

	// Update is the only write. It runs change on the caller's goroutine, again if
	// another write came in between, and returns the stored entry. For a removal that
	// is the last state with the revision of the removal. An error of change is
	// returned unwrapped. ErrNotFound: cur and next were both nil.
	Update(ctx context.Context, key Key, change Change) (*Entry, error)

	// Revision is the newest published revision.
	Revision() int64

	// Close stops writes, ends watches and frees what the store holds.
	Close() error
}
