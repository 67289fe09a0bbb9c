package fake

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"monopod/agent/runtime"
	"monopod/apiserver/process/guard"
)

// maxPending is how many events a reader may lag behind before they are
// replaced by one EventResync.
const maxPending = 1024

// hub hands every event to every reader, in the order of publish.
type hub struct {
	mu      sync.Mutex // guards readers and their pending
	readers map[*reader]struct{}
}

type reader struct {
	pending []runtime.Event
	wake    chan struct{} // holds one token when pending is not empty
}

// Events starts with what happens from now on.
func (r *Runtime) Events(ctx context.Context) (<-chan runtime.Event, error) {
	if err := r.begin(ctx, "Events", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return nil, status.Error(codes.Unavailable, "the runtime is closed")
	}
	in, out := r.events.subscribe(), make(chan runtime.Event)
	(*guard.Guard)(nil).Go(&r.tasks, "events", func() {
		defer close(out)
		defer r.events.unsubscribe(in)
		r.events.pump(ctx, r.ctx, in, out)
	})
	return out, nil
}

// Resync tells every reader of Events that events may be missing, as after the
// runtime was gone for a while.
func (r *Runtime) Resync() {
	r.events.publish(runtime.Event{Type: runtime.EventResync, At: r.clock.Now()})
}

func (h *hub) subscribe() *reader {
	in := &reader{wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readers == nil {
		h.readers = map[*reader]struct{}{}
	}
	h.readers[in] = struct{}{}
	return in
}

func (h *hub) unsubscribe(in *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers, in)
}

// pump sends what is pending until one of the contexts ends.
func (h *hub) pump(ctx, closed context.Context, in *reader, out chan<- runtime.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-closed.Done():
			return
		case <-in.wake:
		}
		for _, event := range h.take(in) {
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

func (h *hub) take(in *reader) []runtime.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	pending := in.pending
	in.pending = nil
	return pending
}

func (h *hub) publish(event runtime.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for in := range h.readers {
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
