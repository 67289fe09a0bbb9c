package pod

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/images"
	"monopod/agent/pod/status"
	"monopod/agent/runtime"
)

// news is what others tell a worker.
type news struct {
	pod     *corev1.Pod // the newest; nil: no change
	gone    bool        // the object no longer exists
	failure *status.Failure
	grace   *time.Duration // of a pod that fails after its start; nil: its own
	events  []runtime.Event
	relist  bool // what the runtime has must be looked at anew
	refresh bool // a ConfigMap, Secret or claim of the pod changed
	arrived bool // images were imported
	removed []string
	pulled  map[string]images.Result // by key
}

// ending says that the pod is to go.
func (n *news) ending() bool { return n.gone || n.pod != nil && n.pod.DeletionTimestamp != nil }

// inbox is what others have told a worker that it has not heard yet. It is safe for
// concurrent use.
type inbox struct {
	wake chan struct{}

	mu        sync.Mutex // guards what follows
	news      news
	failed    bool               // the pod was told to fail: no later reason counts
	heed      bool               // something came that ends the pause after a failed step
	interrupt context.CancelFunc // ends the wait that the worker is in; nil: none
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// poke wakes the worker, also from the pause after a failed step.
func (b *inbox) poke() {
	b.mu.Lock()
	b.heed = true
	b.mu.Unlock()
	b.ring()
}

func (b *inbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// put tells the worker something and wakes it.
func (b *inbox) put(change func(*news)) {
	defer b.poke()
	b.later(change)
}

// later is put for what may follow from the worker's own work: it does not shorten the
// pause after a failed step, else each failure would be the reason for the next.
func (b *inbox) later(change func(*news)) {
	defer b.ring()
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.news)
}

// urgent is put, and ends the wait that the worker is in.
func (b *inbox) urgent(change func(*news)) {
	b.put(func(n *news) {
		change(n)
		if b.interrupt != nil {
			b.interrupt()
		}
	})
}

// fail has the pod end; false: it was told before, and why.
func (b *inbox) fail(why *status.Failure, grace *time.Duration) (first bool) {
	defer b.poke()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed {
		return false
	}
	b.failed, b.news.failure, b.news.grace = true, why, grace
	if b.interrupt != nil {
		b.interrupt()
	}
	return true
}

// open takes the news; what comes later and is urgent calls interrupt.
func (b *inbox) open(interrupt context.CancelFunc) news {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.news
	b.news, b.interrupt, b.heed = news{}, interrupt, false
	return n
}

// heeds says whether something came that ends the pause after a failed step.
func (b *inbox) heeds() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.heed
}

// events takes the runtime's events.
func (b *inbox) events() []runtime.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.news.events
	b.news.events = nil
	return events
}

// ending says whether there is news that the pod is to go.
func (b *inbox) ending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.news.ending()
}

// await has urgent news call interrupt; ending says that there is news that the pod is to
// go, or to fail.
func (b *inbox) await(interrupt context.CancelFunc) (ending bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.interrupt = interrupt
	return b.failed || b.news.ending()
}
