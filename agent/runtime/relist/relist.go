// Package relist lists the pods of the container runtime, and subscribes to its events, for a loop that must not wait
// for the runtime.
//
//   - inventory.go: reads the sandboxes and containers of a node's pods from a container runtime
//   - pleg.go: reports whether a node still observes its pods, through the runtime's event stream or through relists
//     (upstream's pod lifecycle event generator, PLEG)
package relist

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/runtime"
	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/guard"
)

// Config of a Relister. All of it is required.
type Config struct {
	Runtime   runtime.Runtime
	Inventory Reader
	Health    *Health
	Guard     *guard.Guard
	Clock     clock.Clock
	Log       *zap.Logger
	Poke      func() // wakes the check of the node's conditions
}

// Relister lists the runtime's pods and subscribes to its events, in the background.
type Relister struct {
	cfg Config
	// Found receives the containers of the first list.
	Found      func([]*cri.Container)
	goroutines sync.WaitGroup

	Connected chan (<-chan runtime.Event) // receives the events after a Reconnect
	Answer    chan List                   // receives the lists of Relist

	listing bool // used only by the loop: a list is in progress
	stale   bool // used only by the loop: the list may be out of date when it arrives
}

// New returns a Relister.
func New(cfg Config) *Relister {
	return &Relister{cfg: cfg, Connected: make(chan (<-chan runtime.Event)), Answer: make(chan List)}
}

// List contains the sandboxes and containers of all pods of the node.
type List struct {
	sandboxes  []*cri.PodSandbox
	containers []*cri.Container
}

// Connect waits for the runtime to answer and subscribes to its events.
func (r *Relister) Connect(ctx context.Context) (<-chan runtime.Event, bool) {
	for retry := (backoff.Retry{First: 5 * time.Millisecond, Most: time.Second}); ; {
		var events <-chan runtime.Event
		err := r.cfg.Guard.Call("events", func() (err error) {
			if _, err = r.cfg.Runtime.Version(ctx); err == nil {
				events, err = r.cfg.Runtime.Events(ctx)
			}
			return err
		})
		if err == nil {
			r.Streaming(true)
			return events, true
		}
		delay := retry.Next()
		if delay >= time.Second && ctx.Err() == nil {
			r.cfg.Log.Warn("container runtime does not respond", zap.Error(err))
		}
		if !backoff.Sleep(ctx, r.cfg.Clock, delay) {
			return nil, false
		}
	}
}

// Streaming records whether events arrive.
func (r *Relister) Streaming(on bool) {
	r.cfg.Health.Streaming(on)
	r.cfg.Poke()
}

// Reconnect subscribes to the events again, once the runtime answers.
func (r *Relister) Reconnect(ctx context.Context) {
	r.cfg.Health.Streaming(false)
	r.cfg.Guard.Go(&r.goroutines, "events", func() {
		r.cfg.Guard.Keep(ctx, r.cfg.Clock, "events", func() {
			events, ok := r.Connect(ctx)
			if !ok {
				return
			}
			select {
			case <-ctx.Done():
			case r.Connected <- events:
			}
		})
	})
}

// First waits for the first list.
func (r *Relister) First(ctx context.Context) (map[types.UID]*Held, bool) {
	l, ok := r.listUntilAnswered(ctx)
	if !ok {
		return nil, false
	}
	r.Found(l.containers)
	return ByPod(l.sandboxes, l.containers), true
}

// listUntilAnswered retries until the runtime answers: a containerd that has just started returns errors for a moment.
func (r *Relister) listUntilAnswered(ctx context.Context) (List, bool) {
	for retry := (backoff.Retry{First: 50 * time.Millisecond, Most: 10 * time.Second}); ; {
		l, err := r.list(ctx)
		if err == nil {
			return l, true
		}
		r.cfg.Log.Warn("failed to list the pods of the runtime", zap.Error(err))
		if !retry.Wait(ctx, r.cfg.Clock) {
			return List{}, false
		}
	}
}

// Relist lists the runtime's pods in the background and sends the list to Answer.
func (r *Relister) Relist(ctx context.Context) {
	if r.listing {
		r.stale = true
		return
	}
	r.listing, r.stale = true, false
	r.cfg.Guard.Go(&r.goroutines, "relist", func() {
		l, ok := r.listUntilAnswered(ctx)
		if !ok {
			return
		}
		select {
		case <-ctx.Done():
		case r.Answer <- l:
		}
	})
}

// Listed is called with a list from Answer. It returns the pods in it.
func (r *Relister) Listed(l List) (found map[types.UID]*Held) {
	r.listing = false
	return ByPod(l.sandboxes, l.containers)
}

// Taken is called when the loop has processed a list. It lists again if that list may be out of date.
func (r *Relister) Taken(ctx context.Context) {
	if r.stale {
		r.Relist(ctx)
	}
}

// Check returns nil while changes are observed; see Health.Check.
func (r *Relister) Check() error { return r.cfg.Health.Check() }

// Wait waits for lists in progress, whose contexts have ended.
func (r *Relister) Wait() { r.goroutines.Wait() }

// list lists the sandboxes and containers of the node's pods.
func (r *Relister) list(ctx context.Context) (l List, err error) {
	err = r.cfg.Guard.Call("relist", func() (err error) {
		done := r.cfg.Health.Relist()
		defer func() { done(err) }()
		l.sandboxes, l.containers, err = r.cfg.Inventory.All(ctx)
		return err
	})
	return l, err
}
