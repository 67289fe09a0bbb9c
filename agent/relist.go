package agent

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/runtime"
	"monopod/agent/runtime/inventory"
	"monopod/agent/runtime/pleg"
	"monopod/apiserver/process/backoff"
	"monopod/apiserver/process/guard"
)

// relister calls the runtime for the loop, which must not wait for it: lists and events.
type relister struct {
	runtime   runtime.Runtime
	inventory inventory.Reader
	pleg      *pleg.Health
	guard     *guard.Guard
	clock     clock.Clock
	log       *zap.Logger
	poke      func()                 // wakes the check of the node's conditions
	found     func([]*cri.Container) // receives the containers of the first list
	asking    sync.WaitGroup

	connected chan (<-chan runtime.Event)
	answer    chan list

	asked bool // used only by the loop: a list is in progress
	again bool // used only by the loop: the list may be out of date when it arrives
}

// list is everything that the runtime has of our pods.
type list struct {
	sandboxes  []*cri.PodSandbox
	containers []*cri.Container
}

// connect waits for the runtime to answer and subscribes to its events.
func (r *relister) connect(ctx context.Context) (<-chan runtime.Event, bool) {
	for retry := (backoff.Retry{First: 5 * time.Millisecond, Most: time.Second}); ; {
		var events <-chan runtime.Event
		err := r.guard.Call("events", func() (err error) {
			if _, err = r.runtime.Version(ctx); err == nil {
				events, err = r.runtime.Events(ctx)
			}
			return err
		})
		if err == nil {
			r.streaming(true)
			return events, true
		}
		delay := retry.Next()
		if delay >= time.Second && ctx.Err() == nil {
			r.log.Warn("container runtime does not respond", zap.Error(err))
		}
		if !backoff.Sleep(ctx, r.clock, delay) {
			return nil, false
		}
	}
}

// streaming records whether events arrive.
func (r *relister) streaming(on bool) {
	r.pleg.Streaming(on)
	r.poke()
}

// reconnect subscribes to the events again, once the runtime answers.
func (r *relister) reconnect(ctx context.Context) {
	r.pleg.Streaming(false)
	r.guard.Go(&r.asking, "events", func() {
		r.guard.Keep(ctx, r.clock, "events", func() {
			events, ok := r.connect(ctx)
			if !ok {
				return
			}
			select {
			case <-ctx.Done():
			case r.connected <- events:
			}
		})
	})
}

// first waits for the first list.
func (r *relister) first(ctx context.Context) (map[types.UID]*inventory.Held, bool) {
	l, ok := r.insist(ctx)
	if !ok {
		return nil, false
	}
	r.found(l.containers)
	return inventory.ByPod(l.sandboxes, l.containers), true
}

// insist asks until the runtime answers: a containerd that has just started lists nothing for a moment.
func (r *relister) insist(ctx context.Context) (list, bool) {
	for retry := (backoff.Retry{First: 50 * time.Millisecond, Most: 10 * time.Second}); ; {
		l, err := r.ask(ctx)
		if err == nil {
			return l, true
		}
		r.log.Warn("failed to list the pods of the runtime", zap.Error(err))
		if !retry.Wait(ctx, r.clock) {
			return list{}, false
		}
	}
}

// relist lists the runtime's pods in the background.
func (r *relister) relist(ctx context.Context) {
	if r.asked {
		r.again = true
		return
	}
	r.asked, r.again = true, false
	r.guard.Go(&r.asking, "relist", func() {
		l, ok := r.insist(ctx)
		if !ok {
			return
		}
		select {
		case <-ctx.Done():
		case r.answer <- l:
		}
	})
}

// listed takes the list.
func (r *relister) listed(l list) (found map[types.UID]*inventory.Held) {
	r.asked = false
	return inventory.ByPod(l.sandboxes, l.containers)
}

// taken lists again if the list that the loop has taken may be out of date.
func (r *relister) taken(ctx context.Context) {
	if r.again {
		r.relist(ctx)
	}
}

// check returns nil while relists succeed; see pleg.Health.
func (r *relister) check() error { return r.pleg.Check() }

// wait waits for lists in progress, whose contexts have ended.
func (r *relister) wait() { r.asking.Wait() }

// ask lists everything of ours in the runtime.
func (r *relister) ask(ctx context.Context) (l list, err error) {
	err = r.guard.Call("relist", func() (err error) {
		done := r.pleg.Relist()
		defer func() { done(err) }()
		l.sandboxes, l.containers, err = r.inventory.All(ctx)
		return err
	})
	return l, err
}
