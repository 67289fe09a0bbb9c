// Package store keeps the state of the cluster.
//
// A Store maps a Key to an Object and numbers every change with one revision,
// an int64 that only grows and is shared by all resources. Four nouns:
//
//   - Entry: one object at one revision, with its JSON encoded once.
//   - Event: one change, from the old entry to the new.
//   - Selector: which keys and objects a List or Watch is about.
//   - Change: a function from the current object to the next, the only write.
//
// Memory holds everything and serves every read; package bolt makes it durable.
//
// Objects that come out of a Store are shared by every reader: nobody modifies
// them. Copy first (DeepCopyObject), then change the copy.
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
	// ErrExpired: the revision asked for is older than the history kept; list again.
	ErrExpired = errors.New("revision expired")
	// ErrFuture: the revision asked for has not happened yet.
	ErrFuture = errors.New("revision is in the future")
	// ErrClosed: the store is closed.
	ErrClosed = errors.New("store closed")
	// ErrNoSpace: what holds the state is full; nothing was written. The error that
	// wraps it says what to do.
	ErrNoSpace = errors.New("no space left for writing")
	// ErrLost: what a Log had made durable is no longer there.
	ErrLost = errors.New("the durable state was removed or replaced")
	// ErrUnavailable: what holds the state does not answer. A write may have
	// happened or not.
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
	JSON   []byte // Object encoded, resourceVersion included; shared
}

// Event is one change. Old is nil for a creation; New is nil for a removal; both
// are nil for the two marks a watch may send, Lagged and Progress.
type Event struct {
	Key      Key
	Rev      int64
	Old, New *Entry

	gone lazyEntry
}

// Selector says which objects a List or Watch is about. The zero value of each
// field selects everything.
type Selector struct {
	Resource  string            // required
	Namespace string            // empty: all namespaces
	Name      string            // empty: all names
	Match     func(Object) bool // nil: all objects; must be pure

	// For Watch alone: Progress is reported whenever the watch has passed over changes
	// and comes to rest, not only now and then.
	Progress bool

	// For List alone: what there was at revision At (0: now), after the object
	// After ("namespace/name", empty: from the first), at most Limit of it (0: all).
	At    int64
	After string
	Limit int
}

// Change computes the next object from the current one. cur is nil when the
// key holds nothing; returning nil removes the object; returning cur itself, or
// something that encodes to the same JSON, writes nothing. A Change may run
// more than once and must not modify cur.
type Change func(cur Object) (next Object, err error)

// Durability says whether a write must survive a power cut.
type Durability int

// The two classes of writes.
const (
	Durable  Durability = iota // on disk before the call returns
	Volatile                   // in memory only: leases, events, heartbeats
)

// Kind is what a Store must know of a resource.
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

	// List returns what sel selects, ordered by "namespace/name", all of it as it
	// was at the returned revision: sel.At, or now. It fails with ErrExpired or
	// ErrFuture when sel.At is out of reach.
	List(ctx context.Context, sel Selector) ([]*Entry, int64, error)

	// Watch sends every change after rev that touches what sel selects, in order:
	// the old object, the new one or both match. The channel is closed when ctx
	// ends, the store closes, or the reader lags behind the history kept; in the
	// last case the final event is Lagged. A watch that passes over many changes
	// reports Progress now and then. It fails with ErrExpired or ErrFuture when rev
	// is out of reach.
	Watch(ctx context.Context, sel Selector, rev int64) (<-chan *Event, error)

	// Update is the only write. It runs change on the caller's goroutine until its
	// result could be stored without another write in between, and returns the
	// stored entry. For a removal that is the last state with the revision of the
	// removal. change's error is returned as it is. ErrNotFound: cur and next were
	// both nil.
	Update(ctx context.Context, key Key, change Change) (*Entry, error)

	// Revision is the newest published revision.
	Revision() int64

	// Close stops writes, ends watches and frees what the store holds.
	Close() error
}
