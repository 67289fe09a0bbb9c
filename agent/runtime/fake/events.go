package fake

import (
	"context"
	"sync"

	"monopod/agent/runtime"
)

// maxPending is how many events a reader may lag behind before one EventResync replaces them.
const maxPending = 1024

// events sends every event to every reader, in the order of publish.
type events struct {
	gate *Gate

	mu      sync.Mutex // guards readers and their pending
	readers map[*reader]struct{}
}

type reader struct {
	pending []runtime.Event
	wake    chan struct{} // holds one token when pending is not empty
}

// Events implements runtime.Runtime: it begins with the next event.
func (e *events) Events(ctx context.Context) (<-chan runtime.Event, error) {
	if err := e.gate.Begin(ctx, "Events", ""); err != nil {
		return nil, err
	}
	in, out := &reader{wake: make(chan struct{}, 1)}, make(chan runtime.Event)
	e.mu.Lock()
	if e.readers == nil {
		e.readers = map[*reader]struct{}{}
	}
	e.readers[in] = struct{}{}
	e.mu.Unlock()
	err := e.gate.Spawn("events", func() {
		defer close(out)
		defer e.unsubscribe(in)
		e.pump(ctx, in, out)
	})
	if err != nil {
		e.unsubscribe(in)
		return nil, err
	}
	return out, nil
}

// Resync sends an EventResync to every reader of Events, as after the runtime was unreachable.
func (e *events) Resync() {
	e.publish(runtime.Event{Type: runtime.EventResync, At: e.gate.Clock.Now()})
}

func (e *events) unsubscribe(in *reader) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.readers, in)
}

// pump sends the pending events until ctx or the runtime ends.
func (e *events) pump(ctx context.Context, in *reader, out chan<- runtime.Event) {
	closed := e.gate.Context
	for {
		select {
		case <-ctx.Done():
			return
		case <-closed.Done():
			return
		case <-in.wake:
		}
		for _, event := range e.take(in) {
			select {
			case <-ctx.Done():
				return
			case <-closed.Done():
				return
			case out <- event:
			}
		}
	}
}

func (e *events) take(in *reader) []runtime.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	pending := in.pending
	in.pending = nil
	return pending
}

func (e *events) publish(event runtime.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for in := range e.readers {
		if len(in.pending) >= maxPending {
			in.pending = []runtime.Event{{Type: runtime.EventResync, At: event.At}}
		}
		in.pending = append(in.pending, event)
		select {
		case in.wake <- struct{}{}:
		default:
		}
	}
}
