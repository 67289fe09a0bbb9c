// Package follow lets every part of the process follow the API and reconcile: list and watch, a keyed queue,
// reconcile, restart.
//
//   - Source: which objects to watch, and which keys their changes wake.
//   - Loop: passes the sources' keys through one queue to Reconcile, one at a time for a key.
//   - Supervisor: keeps a controller running and restarts it after a panic or an error.
//   - Metrics: metrics of the queues and supervisors.
//
// Retries, backoff and recovery from panics are here and in apiserver/process, and nowhere else. There are no
// informer caches: in process, Client reads from memory.
package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/apiserver/client"
	"monopod/apiserver/follow/order"
	"monopod/apiserver/process/guard"
)

// Key names a namespaced or cluster-scoped object of a known kind.
type Key = types.NamespacedName

// KeyOf returns obj's Key.
func KeyOf(obj client.Object) Key {
	return Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Controller runs until ctx ends, then returns nil. Run may be called again after it has returned; it keeps no
// state between runs.
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

// Deps is what every controller needs. All fields but Guard and Jumps are required.
type Deps struct {
	Client  client.Client
	Clock   clock.WithTicker
	Log     *zap.Logger
	Metrics *Metrics
	Guard   *guard.Guard // logs and counts panics; nil: they are only logged
	Jumps   *Jumps       // of the wall clock; nil: a key that waits for a time runs as late as that
}

// Reconcile brings key to its desired state. After an error, also a conflict, the key is retried with
// exponential backoff; after a positive again it runs at that time, or earlier when a source wakes it. A key
// that is woken again and again by its own writes waits longer each time. ctx ends with the call, or before it at
// the Deadline of the Config.
//
// If the Client is client.Ordered, every source has seen all changes of all kinds up to the start of the
// Reconcile: what a Source's Keys keeps is at least as new as the change that woke the key (see package order).
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

// errDeadline is the cause that ends the context of a Reconcile after its deadline.
var errDeadline = errors.New("reconcile took too long")

// Loop passes the keys that its sources wake to Reconcile: not before every source has listed once, and never
// the same key to two workers at a time.
type Loop[K comparable] struct {
	deps Deps
	cfg  Config[K]
	busy busy

	queue *queue[K]
	order *order.Order[K]
}

// New returns a Loop for one Run.
func New[K comparable](deps Deps, cfg Config[K]) *Loop[K] {
	cfg.Workers = max(cfg.Workers, 1)
	cfg.Deadline = cmp.Or(cfg.Deadline, deadline)
	cfg.MinRetry, cfg.MaxRetry = cmp.Or(cfg.MinRetry, minRetry), cmp.Or(cfg.MaxRetry, maxRetry)
	l := &Loop[K]{deps: deps, cfg: cfg}
	l.queue = newQueue(deps.Clock, deps.Metrics, cfg.Name, cfg.MinRetry, cfg.MaxRetry, l.slowed)
	selectors := make([]client.Selector, len(cfg.Sources))
	for i, src := range cfg.Sources {
		selectors[i] = src.Selector
	}
	l.order = order.New[K](deps.Client, deps.Clock, selectors)
	return l
}

// Add wakes keys from outside the sources. Source.Keys and Reconcile may call it, also for the key being
// reconciled, which then runs once more.
func (l *Loop[K]) Add(keys ...K) {
	l.AddAfter(0, keys...)
}

// AddAfter wakes keys after d, or earlier if something else wakes them.
func (l *Loop[K]) AddAfter(d time.Duration, keys ...K) {
	for _, k := range keys {
		l.queue.AddAfter(k, d)
	}
}

// unsettling is the delay from which on a key that does not settle is logged.
const unsettling = time.Second

// slowed counts a delayed wake.
func (l *Loop[K]) slowed(key K, by time.Duration) {
	l.deps.Metrics.slowed(l.cfg.Name)
	if by >= unsettling {
		l.deps.Log.Warn("object does not settle, reconciling it less often", zap.String("controller", l.cfg.Name),
			zap.Any("key", key), zap.Duration("in", by))
	}
}

// Run watches and reconciles until ctx ends, then waits for everything it started and returns nil. A panic
// anywhere in it ends it with a *guard.Panic.
func (l *Loop[K]) Run(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	unregister := l.deps.Metrics.track(l.cfg.Name, gauges{depth: l.queue.Len, restless: l.queue.pace.restless, busy: &l.busy, clock: l.deps.Clock})
	defer unregister()
	defer l.deps.Jumps.each(l.queue.wakeWaiting)()

	var wg, synced sync.WaitGroup
	spawn := func(f func()) {
		wg.Go(func() {
			if err := guard.Call(func() error { f(); return nil }); err != nil {
				cancel(err)
			}
		})
	}
	follow := func(i int, listed func()) {
		spawn(func() {
			defer listed()
			v := &view[K]{src: l.cfg.Sources[i], deps: l.deps, queue: l.queue, name: l.cfg.Name}
			reached := l.order.Reached(i)
			if run := v.follow(ctx, listed, reached); run() != nil {
				v.watch(ctx, listed, reached) // the store has closed
			}
		})
	}
	var lazy []int
	var appear []<-chan struct{}
	for i, src := range l.cfg.Sources {
		if appeared := first(l.deps.Client, src.Selector.Resource); src.Lazy && appeared != nil {
			lazy, appear = append(lazy, i), append(appear, appeared)
			continue
		}
		synced.Add(1)
		follow(i, sync.OnceFunc(synced.Done))
	}
	spawn(func() { l.work(ctx, &synced, spawn) })
	for i := Await(ctx, appear); i >= 0; i = Await(ctx, appear) {
		follow(lazy[i], func() {}) // the order waits for it
		lazy, appear = slices.Delete(lazy, i, i+1), slices.Delete(appear, i, i+1)
	}
	l.queue.shutDown()
	wg.Wait()
	if p := (*guard.Panic)(nil); errors.As(context.Cause(ctx), &p) {
		return p
	}
	return nil
}

// work starts the workers once every source has listed.
func (l *Loop[K]) work(ctx context.Context, synced *sync.WaitGroup, spawn func(func())) {
	synced.Wait()
	if ctx.Err() != nil {
		return
	}
	l.Add(l.cfg.Start...)
	l.queue.start(l.cfg.Workers, spawn, func(key K) { l.next(ctx, key) })
}

// next reconciles one key.
func (l *Loop[K]) next(ctx context.Context, key K) {
	if ctx.Err() != nil {
		return
	}
	began := l.deps.Clock.Now()
	id := l.busy.begin(began)
	defer func() {
		l.busy.end(id)
		l.deps.Metrics.worked(l.cfg.Name, l.deps.Clock.Since(began))
	}()
	ctx, behind, end := l.order.Begin(ctx, key)
	defer end()
	if behind != nil {
		l.deps.Log.Warn("watch events are late, reconciling without them",
			zap.String("controller", l.cfg.Name), zap.Strings("resources", behind))
	}
	if ctx.Err() != nil {
		return
	}
	again, err := l.reconcile(ctx, key)
	l.settle(ctx, key, again, err)
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

// settle decides when key runs again.
func (l *Loop[K]) settle(ctx context.Context, key K, again time.Duration, err error) {
	switch {
	case err != nil && ctx.Err() != nil:
		return
	case err != nil:
		level := zap.WarnLevel
		if apierrors.IsConflict(err) {
			level = zap.DebugLevel // a conflict
		}
		l.deps.Log.Log(level, "reconcile failed", zap.String("controller", l.cfg.Name),
			zap.Any("key", key), zap.Int("retries", l.queue.failures(key)), zap.Error(err))
		l.deps.Metrics.retried(l.cfg.Name)
		l.queue.fail(key)
		return
	case again > 0:
		l.deps.Metrics.retried(l.cfg.Name)
		l.queue.AddAfter(key, again)
	}
	l.queue.forget(key)
}
