package loop

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// newQueue is client-go's rate limited queue: exponential backoff of 5 ms to
// 1000 s per key under 10 retries a second with a burst of 100 for all keys.
// It gets no metrics provider, since that would wake the process twice a second
// for each queue; the fifo inside measures instead.
func newQueue[K comparable](clk clock.WithTicker, m *Metrics, name string) workqueue.TypedRateLimitingInterface[K] {
	items := &fifo[K]{since: map[K]time.Time{}, clock: clk, metrics: m, name: name}
	inner := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Clock: clk, Queue: items})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Clock: clk, Queue: inner})
	return workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[K](),
		workqueue.TypedRateLimitingQueueConfig[K]{Clock: clk, DelayingQueue: delaying})
}

// fifo is the order of waiting keys; the workqueue around it holds its lock
// during every call.
type fifo[K comparable] struct {
	items   []K
	since   map[K]time.Time
	clock   clock.PassiveClock
	metrics *Metrics
	name    string
}

var _ workqueue.Queue[int] = (*fifo[int])(nil)

func (q *fifo[K]) Touch(K) {}

func (q *fifo[K]) Len() int { return len(q.items) }

func (q *fifo[K]) Push(k K) {
	q.items = append(q.items, k)
	q.since[k] = q.clock.Now()
	q.metrics.added(q.name)
}

func (q *fifo[K]) Pop() K {
	var zero K
	k := q.items[0]
	q.items[0] = zero
	q.items = q.items[1:]
	q.metrics.waited(q.name, q.clock.Since(q.since[k]))
	delete(q.since, k)
	return k
}
