// Package watch serves watches over HTTP and WebSockets, in every encoding of objects.
package watch

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/store"
)

// API provides the objects and changes of watches.
type API interface {
	// Entries returns the selected objects, and the revision of the list.
	Entries(ctx context.Context, sel client.Selector) ([]*store.Entry, int64, error)
	// Changes returns all changes after the revision, and the store's selector.
	Changes(ctx context.Context, sel client.Selector, rev int64) (*store.Changes, store.Selector, error)
	// Revision returns the current revision.
	Revision() int64
}

// Config configures a Watcher. All fields are required.
type Config struct {
	API     API
	MinTime time.Duration   // minimum duration of a watch without a timeout; the maximum is twice that
	Stop    context.Context // watches end with it
	Clock   clock.WithTicker
}

// Watcher serves watches. Watches of the same objects share encoded events.
type Watcher struct {
	Config
	frames frames
}

// New returns a Watcher.
func New(cfg Config) *Watcher {
	return &Watcher{Config: cfg, frames: frames{all: map[frameKey][]byte{}}}
}
