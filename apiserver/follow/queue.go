package follow

import (
	"container/heap"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// Retries of all keys of a queue together, after the first ones; client-go's.
const (
	retriesPerSecond = 10
	retriesAtOnce    = 100
)

// queue passes keys to workers: each key to one at a time, and once more if it was added meanwhile. It delays keys that
// wake themselves, and keys that failed, exponentially.
//
// A queue at rest has no goroutine: workers exist while keys wait. That is what it has over client-go's, of which every
// idle controller kept two to six goroutines and a buffer for 1,000 delayed keys.
type queue[K comparable] struct {
	clock     clock.PassiveClock
	afterFunc func(time.Duration, func()) clock.Timer
	metrics   *Metrics
	name      string
	pace      *pace[K]
	slowed    func(key K, by time.Duration)

	mu      sync.Mutex // guards what follows
	ready   []readyKey[K]
	dirty   map[K]struct{} // keys that are ready, or added again while they run
	running map[K]struct{}
	retries retries[K]
	waiting map[K]struct{} // keys that run at a time
	later   later[K]
	timer   clock.Timer // of the first of later
	crew    crew
	down    bool
}

// crew are the workers of a queue.
type crew struct {
	most  int // 0 until start
	busy  int
	work  func() // what a worker does until no key waits
	spawn func(func())
}

// retries are the pauses of keys that fail.
type retries[K comparable] struct {
	first, most time.Duration // of a key
	limit       *rate.Limiter // of all keys
	failed      map[K]int     // number of failures in a row
}

type readyKey[K comparable] struct {
	key   K
	since time.Time
}

// newQueue returns an empty queue. It calls slowed for each delayed wake.
func newQueue[K comparable](clk clock.PassiveClock, m *Metrics, name string, first, most time.Duration, slowed func(key K, by time.Duration)) *queue[K] {
	q := &queue[K]{clock: clk, afterFunc: clock.RealClock{}.AfterFunc, metrics: m, name: name, pace: newPace[K](clk), slowed: slowed,
		dirty: map[K]struct{}{}, running: map[K]struct{}{}, waiting: map[K]struct{}{}, later: later[K]{at: map[K]*laterKey[K]{}},
		retries: retries[K]{first: first, most: most, limit: rate.NewLimiter(retriesPerSecond, retriesAtOnce), failed: map[K]int{}}}
	if timers, ok := clk.(clock.WithDelayedExecution); ok {
		q.afterFunc = timers.AfterFunc
	}
	return q
}

// start passes the keys to do, on so many goroutines at most, which spawn starts.
func (q *queue[K]) start(workers int, spawn func(func()), do func(K)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.crew = crew{most: workers, spawn: spawn, work: func() {
		for key, ok := q.next(); ok; key, ok = q.next() {
			q.pass(key, do)
		}
	}}
	for range q.ready {
		q.employ()
	}
}

// shutDown ends all workers once they have finished their keys. Nothing is started afterwards.
func (q *queue[K]) shutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.down = true
	if q.timer != nil {
		q.timer.Stop()
	}
}

// employ starts one more worker, if there may be one.
func (q *queue[K]) employ() {
	if q.crew.busy < q.crew.most && !q.down {
		q.crew.busy++
		q.crew.spawn(q.crew.work)
	}
}

// next takes a key; !ok: none waits, and the worker ends.
func (q *queue[K]) next() (key K, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ready) == 0 || q.down {
		q.crew.busy--
		return key, false
	}
	first := q.ready[0]
	if q.ready = q.ready[1:]; len(q.ready) == 0 {
		q.ready = nil
	}
	delete(q.dirty, first.key)
	delete(q.waiting, first.key)
	q.running[first.key] = struct{}{}
	q.metrics.waited(q.name, q.clock.Since(first.since))
	q.pace.begin(first.key)
	return first.key, true
}

// pass calls do, which may panic.
func (q *queue[K]) pass(key K, do func(K)) {
	defer func() {
		q.pace.end(key)
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.running, key)
		if _, again := q.dirty[key]; again {
			q.push(key)
		}
	}()
	do(key)
}

// push makes a key ready.
func (q *queue[K]) push(key K) {
	q.ready = append(q.ready, readyKey[K]{key, q.clock.Now()})
	q.metrics.added(q.name)
	q.employ()
}

// Len returns the number of keys that are ready.
func (q *queue[K]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.ready)
}

// Add wakes a key: at once, unless it has not rested for long.
func (q *queue[K]) Add(key K) { q.AddAfter(key, 0) }

// AddAfter wakes a key after d.
func (q *queue[K]) AddAfter(key K, d time.Duration) {
	if wait := q.pace.woken(key, d); wait > d {
		q.slowed(key, wait)
		d = wait
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.down {
		return
	}
	if d > echo {
		q.waiting[key] = struct{}{}
	}
	if d <= 0 {
		q.add(key)
	} else if q.later.add(key, q.clock.Now().Add(d)) {
		q.arm()
	}
}

// add wakes a key now.
func (q *queue[K]) add(key K) {
	if _, is := q.dirty[key]; is {
		return
	}
	q.dirty[key] = struct{}{}
	if _, runs := q.running[key]; !runs {
		q.push(key)
	}
}

// arm sets the timer for the first of the delayed keys.
func (q *queue[K]) arm() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	if len(q.later.keys) > 0 && !q.down {
		q.timer = q.afterFunc(q.later.keys[0].at.Sub(q.clock.Now()), q.due)
	}
}

// due wakes the delayed keys whose time has come.
func (q *queue[K]) due() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.down {
		return
	}
	for now := q.clock.Now(); len(q.later.keys) > 0 && !q.later.keys[0].at.After(now); {
		q.add(q.later.pop())
	}
	q.arm()
}

// fail wakes a key that failed after a pause, which doubles with each failure until forget.
func (q *queue[K]) fail(key K) {
	q.mu.Lock()
	pause := q.retries.pause(key)
	q.mu.Unlock()
	q.AddAfter(key, max(pause, q.retries.limit.Reserve().Delay()))
}

// pause counts a failure and returns the pause after it.
func (r *retries[K]) pause(key K) time.Duration {
	n := r.failed[key]
	r.failed[key] = n + 1
	if n < 62 && r.first<<n>>n == r.first { // no overflow
		return min(r.first<<n, r.most)
	}
	return r.most
}

// failures returns how often a key failed in a row.
func (q *queue[K]) failures(key K) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.retries.failed[key]
}

// forget ends the failures of a key.
func (q *queue[K]) forget(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.retries.failed, key)
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

// later is a heap of keys by time.
type later[K comparable] struct {
	keys []*laterKey[K]
	at   map[K]*laterKey[K]
}

type laterKey[K comparable] struct {
	key   K
	at    time.Time
	index int
}

// add adds a key, or moves it forward, and reports whether the key is now the first one.
func (l *later[K]) add(key K, at time.Time) (first bool) {
	switch k := l.at[key]; {
	case k == nil:
		k = &laterKey[K]{key: key, at: at}
		l.at[key] = k
		heap.Push(l, k)
	case at.Before(k.at):
		k.at = at
		heap.Fix(l, k.index)
	default:
		return false
	}
	return l.keys[0].key == key
}

// pop removes the first key.
func (l *later[K]) pop() K {
	k := heap.Pop(l).(*laterKey[K])
	delete(l.at, k.key)
	return k.key
}

// Len implements heap.Interface.
func (l *later[K]) Len() int { return len(l.keys) }

// Less implements heap.Interface.
func (l *later[K]) Less(i, j int) bool { return l.keys[i].at.Before(l.keys[j].at) }

// Swap implements heap.Interface.
func (l *later[K]) Swap(i, j int) {
	l.keys[i], l.keys[j] = l.keys[j], l.keys[i]
	l.keys[i].index, l.keys[j].index = i, j
}

// Push implements heap.Interface.
func (l *later[K]) Push(k any) {
	added := k.(*laterKey[K])
	added.index = len(l.keys)
	l.keys = append(l.keys, added)
}

// Pop implements heap.Interface.
func (l *later[K]) Pop() any {
	last := len(l.keys) - 1
	k := l.keys[last]
	l.keys[last] = nil
	l.keys = l.keys[:last]
	return k
}
