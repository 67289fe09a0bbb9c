// Package watch serves watches over HTTP and over WebSockets, in every form that an
// object has.
package watch

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"monopod/apiserver/client"
	"monopod/store"
)

// API is what watches are made of.
type API interface {
	// Entries are all that is selected, and the revision they were read at.
	Entries(ctx context.Context, sel client.Selector) ([]*store.Entry, int64, error)
	// Changes are all after the revision, and the selector as the store sees it.
	Changes(ctx context.Context, sel client.Selector, rev int64) (<-chan *store.Event, store.Selector, error)
	// Revision is the newest one.
	Revision() int64
}

// Config of a watcher. All is required.
type Config struct {
	API     API
	MinTime time.Duration   // of a watch whose client does not say; it ends within twice that
	Stop    context.Context // watches end with it
	Clock   clock.WithTicker
}

// Watcher serves watches. Those that watch the same share what is encoded.
type Watcher struct {
	Config
	frames frames
}

// New returns a watcher.
func New(cfg Config) *Watcher { return &Watcher{Config: cfg} }
