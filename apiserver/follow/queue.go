package follow

import (
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// queue is client-go's rate limited queue: exponential backoff for each key that failed, and at most 10 retries a
// second with a burst of 100 for all keys. It also delays keys that wake themselves.
type queue[K comparable] struct {
	workqueue.TypedRateLimitingInterface[K]
	pace   *pace[K]
	slowed func(key K, by time.Duration)

	mu      sync.Mutex     // guards waiting
	waiting map[K]struct{} // keys that run at a time
}

// newQueue returns an empty queue. It calls slowed for each delayed wake. The queue gets no metrics provider,
// which would wake the process twice a second for each queue; the fifo inside measures instead.
func newQueue[K comparable](clk clock.WithTicker, m *Metrics, name string, limit workqueue.TypedRateLimiter[K], slowed func(key K, by time.Duration)) *queue[K] {
	items := &fifo[K]{since: map[K]time.Time{}, clock: clk, metrics: m, name: name}
	inner := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Clock: clk, Queue: items})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Clock: clk, Queue: inner})
	limited := workqueue.NewTypedRateLimitingQueueWithConfig(limit,
		workqueue.TypedRateLimitingQueueConfig[K]{Clock: clk, DelayingQueue: delaying})
	return &queue[K]{TypedRateLimitingInterface: limited, pace: newPace[K](clk), slowed: slowed, waiting: map[K]struct{}{}}
}

// retries is client-go's default limiter with other pauses for each key.
func retries[K comparable](first, most time.Duration) workqueue.TypedRateLimiter[K] {
	return workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](first, most),
		&workqueue.TypedBucketRateLimiter[K]{Limiter: rate.NewLimiter(rate.Limit(10), 100)})
}

// Add wakes a key: at once, unless it has not rested for long.
func (q *queue[K]) Add(key K) { q.AddAfter(key, 0) }

// AddAfter wakes a key after d.
func (q *queue[K]) AddAfter(key K, d time.Duration) {
	if wait := q.pace.woken(key, d); wait > d {
		q.slowed(key, wait)
		d = wait
	}
	if d > echo {
		q.mu.Lock()
		q.waiting[key] = struct{}{}
		q.mu.Unlock()
	}
	q.TypedRateLimitingInterface.AddAfter(key, d)
}

// Get waits for the next key; Done must follow.
func (q *queue[K]) Get() (key K, shutdown bool) {
	key, shutdown = q.TypedRateLimitingInterface.Get()
	if !shutdown {
		q.pace.begin(key)
		q.mu.Lock()
		delete(q.waiting, key)
		q.mu.Unlock()
	}
	return key, shutdown
}

// wakeWaiting wakes the keys that run at a time, because the wall clock has jumped.
func (q *queue[K]) wakeWaiting() {
	q.mu.Lock()
	keys := slices.Collect(maps.Keys(q.waiting))
	q.mu.Unlock()
	for _, key := range keys {
		q.Add(key)
	}
}

// Done ends what Get began.
func (q *queue[K]) Done(key K) {
	q.pace.end(key)
	q.TypedRateLimitingInterface.Done(key)
}

// fifo orders waiting keys; the workqueue around it holds its lock during every call.
type fifo[K comparable] struct {
	items   []K
	since   map[K]time.Time
	clock   clock.PassiveClock
	metrics *Metrics
	name    string
	most    int // keys since the queue was made, or its memory released
}

// few is the number of waiting keys whose memory is kept for the next ones.
const few = 100

var _ workqueue.Queue[int] = (*fifo[int])(nil)

func (q *fifo[K]) Touch(K) {}

func (q *fifo[K]) Len() int { return len(q.items) }

func (q *fifo[K]) Push(k K) {
	q.items = append(q.items, k)
	q.since[k] = q.clock.Now()
	q.most = max(q.most, len(q.items))
	q.metrics.added(q.name)
}

func (q *fifo[K]) Pop() K {
	var zero K
	k := q.items[0]
	q.items[0] = zero
	q.items = q.items[1:]
	q.metrics.waited(q.name, q.clock.Since(q.since[k]))
	if delete(q.since, k); len(q.items) == 0 && q.most > few { // a map keeps the size that it had with the most keys
		q.items, q.since, q.most = nil, map[K]time.Time{}, 0
	}
	return k
}
