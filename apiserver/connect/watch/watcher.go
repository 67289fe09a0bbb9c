// Package watch serves watches over HTTP and WebSockets, in every encoding of objects.
package watch

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"monopod/apiserver/client"
	"monopod/apiserver/process/guard"
	"monopod/store"
)

// API provides the objects and changes of watches.
type API interface {
	// Entries returns everything that is selected, and the revision of the list.
	Entries(ctx context.Context, sel client.Selector) ([]*store.Entry, int64, error)
	// Changes returns all changes after the revision, and the store's selector.
	Changes(ctx context.Context, sel client.Selector, rev int64) (*store.Changes, store.Selector, error)
	// Revision returns the current revision.
	Revision() int64
}

// Config of a Watcher. All fields but Guard are required.
type Config struct {
	API     API
	MinTime time.Duration   // minimum duration of a watch without a timeout; it ends within twice that
	Stop    context.Context // watches end with it
	Clock   clock.WithTicker
	Guard   *guard.Guard // nil: panics are only recovered
}

// Watcher serves watches. Watches of the same objects share encoded events.
type Watcher struct {
	Config
	frames  frames
	crowds  *crowds
	buffers sync.Pool // of *[]byte, for frames that are written together
}

// New returns a Watcher.
func New(cfg Config) *Watcher { return &Watcher{Config: cfg, crowds: newCrowds(cfg)} }

func (s *Watcher) buffer() []byte {
	if b, ok := s.buffers.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, pending)
}

// release takes a buffer that is no longer used, or nil.
func (s *Watcher) release(b []byte) {
	if b = b[:0]; cap(b) > 0 && cap(b) <= maxBuffer {
		s.buffers.Put(&b)
	}
}
