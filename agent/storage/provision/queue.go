package provision

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// What failed is tried again after a second, twice that, and so on up to five
// minutes.
const (
	retryFirst = time.Second
	retryMax   = 5 * time.Minute
)

// task is a claim, or a volume, which has no namespace.
type task struct{ namespace, name string }

func (t task) String() string { return t.namespace + "/" + t.name }

// queue is what has to be done, each task once however often it was added.
type queue struct {
	wake chan struct{}

	mu     *sync.Mutex // guards what follows
	ready  []task
	queued map[task]bool
	later  map[task]failed
}

// failed is a task that failed.
type failed struct {
	delay time.Duration
	at    time.Time // when it is tried again; zero: it is being tried
}

func newQueue() queue {
	return queue{wake: make(chan struct{}, 1), mu: &sync.Mutex{}, queued: map[task]bool{}, later: map[task]failed{}}
}

// add has a task done now.
func (q *queue) add(t task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.queued[t] {
		q.queued[t] = true
		q.ready = append(q.ready, t)
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// again has a task that failed done once more, later.
func (q *queue) again(t task, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delay := min(max(2*q.later[t].delay, retryFirst), retryMax)
	q.later[t] = failed{delay: delay, at: now.Add(delay)}
}

// forget says that a task went well.
func (q *queue) forget(t task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.later, t)
}

// next waits for a task; false: ctx has ended.
func (q *queue) next(ctx context.Context, clk clock.Clock) (task, bool) {
	for ctx.Err() == nil {
		t, wait, ok := q.pop(clk.Now())
		if ok {
			return t, true
		}
		if wait == 0 { // nothing failed
			select {
			case <-ctx.Done():
			case <-q.wake:
			}
			continue
		}
		timer := clk.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-q.wake:
		case <-timer.C():
		}
		timer.Stop()
	}
	return task{}, false
}

// pop takes a task that is due; else wait is the time until one is, 0: none is.
func (q *queue) pop(now time.Time) (t task, wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ready) > 0 {
		t, q.ready = q.ready[0], q.ready[1:]
		delete(q.queued, t)
		return t, 0, true
	}
	for t, f := range q.later {
		left := f.at.Sub(now)
		switch {
		case f.at.IsZero():
		case left <= 0:
			q.later[t] = failed{delay: f.delay}
			return t, 0, true
		case wait == 0 || left < wait:
			wait = left
		}
	}
	return task{}, wait, false
}
