package pod

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/images"
	"monopod/agent/podapi/status"
	"monopod/agent/runtime"
)

// news are the changes that a worker has not processed.
type news struct {
	pod     *corev1.Pod // the newest version; nil: no change
	gone    bool        // the object no longer exists
	failure *status.Failure
	grace   *time.Duration // grace period of a pod that fails after its start; nil: its own
	events  []runtime.Event
	relist  bool // the runtime's state must be read again
	refresh bool // a ConfigMap, Secret or claim of the pod changed
	arrived bool // images were imported
	removed []string
	pulled  map[string]images.Result // by key
}

// ending reports whether the pod must end.
func (n *news) ending() bool { return n.gone || n.pod != nil && n.pod.DeletionTimestamp != nil }

// inbox collects news for a worker. It is safe for concurrent use.
type inbox struct {
	wake chan struct{}

	mu        sync.Mutex // guards the fields below
	news      news
	failed    bool               // fail was called: later failures are ignored
	retryNow  bool               // the news end the pause after a failed step
	interrupt context.CancelFunc // interrupts the worker's current step; nil: none
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// poke wakes the worker, also from the pause after a failed step.
func (b *inbox) poke() {
	b.mu.Lock()
	b.retryNow = true
	b.mu.Unlock()
	b.wakeWorker()
}

func (b *inbox) wakeWorker() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// put adds news and wakes the worker.
func (b *inbox) put(change func(*news)) {
	defer b.poke()
	b.putQuietly(change)
}

// putQuietly adds news that may follow from the worker's own actions. Unlike put, it does not shorten the pause after a
// failed step: each failure would cause the next attempt.
func (b *inbox) putQuietly(change func(*news)) {
	defer b.wakeWorker()
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.news)
}

// putUrgent adds news like put, and interrupts the worker's current step.
func (b *inbox) putUrgent(change func(*news)) {
	b.put(func(n *news) {
		change(n)
		if b.interrupt != nil {
			b.interrupt()
		}
	})
}

// fail makes the pod end. It returns false if fail was called before.
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

// take removes and returns the news. Later urgent news call interrupt.
func (b *inbox) take(interrupt context.CancelFunc) news {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.news
	b.news, b.interrupt, b.retryNow = news{}, interrupt, false
	return n
}

// retriesNow reports whether the news end the pause after a failed step.
func (b *inbox) retriesNow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.retryNow
}

// takeEvents removes and returns the runtime's events.
func (b *inbox) takeEvents() []runtime.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.news.events
	b.news.events = nil
	return events
}

// ending reports whether the news make the pod end.
func (b *inbox) ending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.news.ending()
}

// setInterrupt makes urgent news call interrupt. It reports whether the pod must already end or fail.
func (b *inbox) setInterrupt(interrupt context.CancelFunc) (ending bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.interrupt = interrupt
	return b.failed || b.news.ending()
}
