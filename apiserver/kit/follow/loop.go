// Package follow implements controllers: list and watch, a keyed queue, reconcile, restart.
//
//   - Source defines which objects to watch, and which keys their changes wake.
//   - Loop passes the sources' keys through one of client-go's queues to Reconcile, one at a time for a key.
//   - Current, SeesOwnWrites and Tracking tell which changes the sources have seen when a Reconcile starts.
//   - Supervisor keeps a controller running and restarts it after a panic or an error.
//   - Metrics contains the metrics of the queues and supervisors.
//
// Retries, backoff and recovery from panics are here and in packages backoff and guard, and nowhere else. There are no
// informer caches: in process, Client reads from memory.
package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

// Key names a namespaced or cluster-scoped object of a known kind.
type Key = types.NamespacedName

// KeyOf returns obj's Key.
func KeyOf(obj client.Object) Key {
	return Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Controller runs until ctx ends, then returns nil. Run may be called again after it has returned, and keeps no state
// between runs.
type Controller interface {
	Name() string
	Run(ctx context.Context) error
}

// Task is a Controller that consists of one function.
func Task(name string, run func(ctx context.Context) error) Controller { return task{name, run} }

type task struct {
	name string
	run  func(ctx context.Context) error
}

// Name implements Controller.
func (t task) Name() string { return t.name }

// Run implements Controller.
func (t task) Run(ctx context.Context) error { return t.run(ctx) }

// Deps contains the dependencies of every controller. All fields but Guard and Jumps are required.
type Deps struct {
	Client  client.Client
	Clock   clock.WithTicker
	Log     *zap.Logger
	Metrics *Metrics
	Guard   *guard.Guard // logs and counts panics; nil: they are only logged
	Jumps   *Jumps       // of the wall clock; nil: they do not wake keys that wait for a time
}

// Reconcile brings key to its desired state. After an error, also a conflict, the key is retried with
// exponential backoff; after a positive again it runs at that time, or earlier when a source wakes it. A key that
// is woken all the time runs at most twice a second, after the first 500 runs. ctx ends with the call, or before it
// at the Deadline of the Config.
//
// If the Client is client.Ordered, every source has seen all changes of all kinds up to the start of the
// Reconcile, unless it is late (Current): what a Source's Keys keeps is at least as new as the change that woke
// the key.
type Reconcile[K comparable] func(ctx context.Context, key K) (again time.Duration, err error)

// Config configures a Loop.
type Config[K comparable] struct {
	Name      string // of the queue, in metrics and logs
	Workers   int    // 0 means 1
	Sources   []Source[K]
	Start     []K // keys to reconcile once, after the first full lists
	Reconcile Reconcile[K]

	// Deadline ends the context of a Reconcile that takes longer, so that a call that hangs does not block the
	// worker; 0: 5 min. The key is then retried.
	Deadline time.Duration
	// MinRetry and MaxRetry are the first and the longest pause of a key that fails again and again; each is
	// twice the one before. 0: 5 ms and 1000 s.
	MinRetry, MaxRetry time.Duration
}

// Defaults of a Config; client-go's for the retries.
const (
	deadline = 5 * time.Minute
	minRetry = 5 * time.Millisecond
	maxRetry = 1000 * time.Second
)

// Retries of all keys of a loop together, after the first ones; client-go's.
const (
	retriesPerSecond = 10
	retriesAtOnce    = 100
)

// errDeadline is the cause that ends the context of a Reconcile after its deadline.
var errDeadline = errors.New("reconcile took too long")

// Loop passes the keys that its sources wake to Reconcile: not before every source has listed once, and never
// the same key to two workers at a time.
type Loop[K comparable] struct {
	deps    Deps
	cfg     Config[K]
	running running
	queue   workqueue.TypedDelayingInterface[K]
	retries workqueue.TypedRateLimiter[K]
	order   *order

	optional chan struct{} // closed by FollowOptional
	once     sync.Once     // closes optional
	listed   chan struct{} // closed when the optional sources have listed

	mu      sync.Mutex     // guards waiting
	waiting map[K]struct{} // keys that run at a time
}

// New returns a Loop for one Run, which must follow.
func New[K comparable](deps Deps, cfg Config[K]) *Loop[K] {
	cfg.Workers = max(cfg.Workers, 1)
	cfg.Deadline = cmp.Or(cfg.Deadline, deadline)
	cfg.MinRetry, cfg.MaxRetry = cmp.Or(cfg.MinRetry, minRetry), cmp.Or(cfg.MaxRetry, maxRetry)
	kinds := make([]schema.GroupVersionResource, len(cfg.Sources))
	for i, src := range cfg.Sources {
		kinds[i] = src.Selector.Resource
	}
	order := newOrder(deps.Client, deps.Clock, kinds)
	for i, src := range cfg.Sources {
		if src.Optional {
			order.ignore(i)
		}
	}
	return &Loop[K]{deps: deps, cfg: cfg, order: order, waiting: map[K]struct{}{}, optional: make(chan struct{}),
		listed: make(chan struct{}),
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
			Name: cfg.Name, MetricsProvider: provider{deps.Metrics}, Clock: noTicker{deps.Clock},
		}),
		retries: workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[K](cfg.MinRetry, cfg.MaxRetry),
			&workqueue.TypedBucketRateLimiter[K]{Limiter: rate.NewLimiter(retriesPerSecond, retriesAtOnce)},
		),
	}
}

// noTicker is a clock for queues whose tickers do not tick. Otherwise an idle queue wakes up every 500 ms for two
// metrics, which Metrics computes when they are read, and every 10 s in case a timer was missed.
type noTicker struct{ clock.WithTicker }

// NewTicker implements clock.WithTicker.
func (noTicker) NewTicker(time.Duration) clock.Ticker { return silentTicker{} }

type silentTicker struct{}

// C implements clock.Ticker.
func (silentTicker) C() <-chan time.Time { return nil }

// Stop implements clock.Ticker.
func (silentTicker) Stop() {}

// Add wakes keys from outside the sources. Source.Keys and Reconcile may call it, also for the key being
// reconciled, which then runs once more.
func (l *Loop[K]) Add(keys ...K) {
	for _, key := range keys {
		l.queue.Add(key)
	}
}

// AddAfter wakes keys after d, or earlier if something else wakes them.
func (l *Loop[K]) AddAfter(d time.Duration, keys ...K) {
	l.mu.Lock()
	for _, key := range keys {
		l.waiting[key] = struct{}{}
	}
	l.mu.Unlock()
	for _, key := range keys {
		l.queue.AddAfter(key, d)
	}
}

// FollowOptional makes Run follow the optional sources, too. Source.Keys may call it, again and again: the Reconcile
// that it wakes waits for the first lists of these sources.
func (l *Loop[K]) FollowOptional() {
	l.once.Do(func() {
		for i, src := range l.cfg.Sources {
			if src.Optional {
				l.order.expect(i)
			}
		}
		close(l.optional)
	})
}

// Run watches and reconciles until ctx ends, then waits for its goroutines and returns nil. After a panic in one of
// them it returns a *guard.Panic.
func (l *Loop[K]) Run(ctx context.Context) error {
	defer l.deps.Metrics.track(l.cfg.Name, gauges{depth: l.queue.Len, running: &l.running, clock: l.deps.Clock})()
	group, ctx := guard.With(ctx)
	var synced, optional sync.WaitGroup
	for i, src := range l.cfg.Sources {
		lists := &synced
		if src.Optional {
			lists = &optional
		}
		lists.Add(1)
		group.Do(func() error {
			listed := sync.OnceFunc(lists.Done)
			defer listed()
			if src.Optional {
				select {
				case <-l.optional:
				case <-ctx.Done():
					return nil
				}
			}
			w := &sourceWatch[K]{src: src, deps: l.deps, name: l.cfg.Name, add: l.Add}
			w.follow(ctx, listed, func(revision string) { l.order.reached(i, revision) })
			return nil
		})
	}
	group.Do(func() error {
		if synced.Wait(); ctx.Err() == nil {
			l.Add(l.cfg.Start...)
			l.work(ctx, group)
		}
		return nil
	})
	group.Do(func() error {
		optional.Wait()
		close(l.listed)
		return nil
	})
	for jumped := l.deps.Jumps.next(); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-jumped:
			jumped = l.deps.Jumps.next()
			l.mu.Lock()
			waiting := slices.Collect(maps.Keys(l.waiting))
			l.mu.Unlock()
			l.Add(waiting...)
		}
	}
	l.queue.ShutDown()
	return group.Wait()
}

// work reconciles the keys of the queue until it is shut down, each on a goroutine of its own.
func (l *Loop[K]) work(ctx context.Context, group *guard.Group) {
	workers := make(chan struct{}, l.cfg.Workers)
	pace := pace[K]{of: map[K]*rate.Limiter{}, sweep: minSweep}
	for {
		workers <- struct{}{}
		key, shutdown := l.queue.Get()
		if shutdown {
			return
		}
		if wait := pace.wait(key, l.deps.Clock.Now()); wait > 0 {
			l.queue.AddAfter(key, wait)
			l.queue.Done(key)
			<-workers
			continue
		}
		group.Do(func() error {
			defer func() { <-workers }()
			defer l.queue.Done(key)
			l.next(ctx, key)
			return nil
		})
	}
}

// next reconciles one key, and decides when it runs again.
func (l *Loop[K]) next(ctx context.Context, key K) {
	if ctx.Err() != nil {
		return
	}
	defer l.running.begin(l.deps.Clock)()
	l.mu.Lock()
	delete(l.waiting, key)
	l.mu.Unlock()
	select {
	case <-l.optional:
		<-l.listed // also when ctx ends
	default:
	}
	ctx, behind := l.order.begin(ctx)
	if behind != nil {
		l.deps.Log.Warn("watch events are late, reconciling without them",
			zap.String("controller", l.cfg.Name), zap.Strings("resources", behind))
	}
	if ctx.Err() != nil {
		return
	}
	again, err := l.reconcile(ctx, key)
	switch {
	case err != nil && ctx.Err() != nil:
		return
	case err != nil:
		level := zap.WarnLevel
		if apierrors.IsConflict(err) {
			level = zap.DebugLevel
		}
		l.deps.Log.Log(level, "reconcile failed", zap.String("controller", l.cfg.Name),
			zap.Any("key", key), zap.Int("retries", l.retries.NumRequeues(key)), zap.Error(err))
		l.AddAfter(l.retries.When(key), key)
		return
	case again > 0:
		l.AddAfter(again, key)
	}
	l.retries.Forget(key)
}

// reconcile calls Reconcile with its deadline. If it fails because of the deadline, the error says so.
func (l *Loop[K]) reconcile(ctx context.Context, key K) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.Deadline, errDeadline)
	defer cancel()
	again, err := l.cfg.Reconcile(ctx, key)
	if err != nil && errors.Is(context.Cause(ctx), errDeadline) {
		err = fmt.Errorf("%w: %w", errDeadline, err)
	}
	return again, err
}
