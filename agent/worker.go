package agent

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/pod/probe"
	"monopod/agent/pod/resize"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/agent/runtime"
	"monopod/agent/storage/volume"
	"monopod/apiserver/process/backoff"
	"monopod/apiserver/process/guard"
)

// workState is where a pod is on its one-way road.
type workState int

const (
	syncing     workState = iota // containers are to run
	terminating                  // they are being stopped
	terminated                   // all dead and cleared away; the object may remain
)

// inbox is what others tell a worker.
type inbox struct {
	pod     *corev1.Pod // newest; nil: no news
	gone    bool        // the object no longer exists
	refused *status.Failure
	hurry   *time.Duration // the grace of one refused after it started; nil: its own
	events  []runtime.Event
	relist  bool // what the runtime has must be looked at anew
	refresh bool // a ConfigMap or Secret of the pod changed
	arrived bool // images were imported
	// collected are dead containers and sandboxes that were removed.
	collected []string
	images    map[string]imageResult
	// interrupt ends the wait the worker is in, if any.
	interrupt context.CancelFunc
}

// imageResult is how a pull ended.
type imageResult struct {
	image *cri.Image
	err   error
}

// worker makes one pod what it should be: one goroutine, so that a pod is never
// handled twice at once. Others talk to it through update.
type worker struct {
	a      *Agent
	uid    types.UID
	after  <-chan struct{} // closed when the earlier pod of the name is gone; may be nil
	done   chan struct{}   // closed when this one is
	judged chan struct{}   // closed when it is decided whether it is let in
	room   []*worker       // who goes to make room for it; set before judged is closed
	letIn  chan struct{}   // closed when it was judged again for that
	wake   chan struct{}
	// static: the pod comes from a file; the API has only its mirror.
	static bool

	mu      sync.Mutex // guards what follows
	in      inbox
	refused bool            // it was told to end, and why: no later reason counts
	news    chan struct{}   // closed and replaced with each snapshot
	hooked  map[string]bool // containers whose preStop ran

	snapshot atomic.Pointer[status.Observed] // for readers on other goroutines
	current  atomic.Pointer[corev1.Pod]      // likewise
	given    atomic.Pointer[corev1.Pod]      // likewise: pod
	quiet    atomic.Bool                     // failing probes are no news: it is being stopped
	over     atomic.Bool                     // nothing of it starts again, its status is stored
	entered  atomic.Bool                     // it was let in: it holds resources
	mounted  atomic.Bool                     // its volumes were there once
	placed   atomic.Pointer[places]          // likewise: where volumes lie, by name

	life       context.Context // ends with the agent; set by run
	probes     *probe.Manager
	background sync.WaitGroup // pulls

	// What follows belongs to run's goroutine.
	log       *zap.Logger
	pod       *corev1.Pod    // with the resources that its containers are given
	asked     *corev1.Pod    // with those that it asks for
	deferred  *status.Resize // why it is not given those
	progress  *status.Resize // while the containers do not have what they are given
	resizeAt  time.Time      // when the runtime is asked again that refused
	state     workState
	gone      bool
	stale     bool // seen must be read anew
	known     bool // seen was right once: what is new in it was not adopted
	refresh   bool
	failure   *status.Failure
	hurry     *time.Duration // bounds the grace of its end; nil: nothing does
	seen      status.Observed
	reported  *corev1.PodStatus
	waiting   map[string]status.Waiting
	images    map[string]*imageState
	users     *cri.UserNamespace
	volumes   map[string]string // where they lie, once prepared
	unmounted error             // why not all of them are there
	unbound   time.Time         // since when they wait for a claim
	immutable volume.Immutable  // of what they show
	crashes   backoff.Backoff
	starting  map[string]start                   // by container; nil: none yet
	anew      map[string]int                     // how often a container was made anew since it last started
	announced map[string]bool                    // containers whose crash backoff was told of
	devices   map[string][]corev1.ResourceStatus // of each container, as they were last
	errors    int                                // failed steps in a row
	panics    int                                // steps in a row that panicked
	retry     time.Duration                      // until the next step; 0: the usual
	started   time.Time                          // when the kill began
	learned   time.Time                          // when the node learned of a new pod; zero: its start was counted, or it is older than the agent
	settled   bool                               // the final status is computed
	uncaged   bool                               // the cgroup is removed
}

func newWorker(a *Agent, pod *corev1.Pod) *worker {
	w := &worker{
		a: a, uid: pod.UID, pod: resize.Allocated(pod), asked: pod, static: a.statics.want[pod.UID] == pod,
		done: make(chan struct{}), wake: make(chan struct{}, 1), letIn: make(chan struct{}), judged: make(chan struct{}), news: make(chan struct{}),
		images: map[string]*imageState{}, announced: map[string]bool{}, hooked: map[string]bool{},
		log: a.log.With(zap.String("namespace", pod.Namespace), zap.String("pod", pod.Name), zap.String("uid", string(pod.UID))),
	}
	if pod.Status.StartTime == nil {
		w.learned = a.Clock.Now()
	}
	w.current.Store(pod)
	w.given.Store(w.pod)
	w.probes = &probe.Manager{Caller: a.caller, Clock: a.Clock, Guard: a.guard, Metrics: a.probes, Pod: pod, Events: probe.Events{
		Changed: func(string) { w.wakeUp() },
		Failed:  w.unhealthy,
		Warned: func(id string, kind probe.Kind, warning string) {
			w.probeEvent(id, "ProbeWarning", "%s probe warning: %s", kind, warning)
		},
	}}
	return w
}

// update changes the inbox and wakes the worker.
func (w *worker) update(change func(*inbox)) {
	defer w.wakeUp()
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.in)
}

func (w *worker) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// changed brings a newer version of the pod. One that asks for a faster end than
// before interrupts what the worker waits for.
func (w *worker) changed(pod *corev1.Pod) {
	old := w.current.Swap(pod)
	urgent := pod.DeletionTimestamp != nil && (old.DeletionTimestamp == nil || spec.Grace(pod) < spec.Grace(old))
	w.update(func(in *inbox) {
		in.pod = pod
		if urgent && in.interrupt != nil {
			in.interrupt()
		}
	})
}

// removed says that the object is gone: whatever still runs must end soon.
func (w *worker) removed() {
	w.update(func(in *inbox) {
		in.gone = true
		if in.interrupt != nil {
			in.interrupt()
		}
	})
}

// run works until the pod is gone from the API and from this node, or ctx ends.
func (w *worker) run(ctx context.Context) {
	w.life = ctx
	defer w.background.Wait()
	defer w.a.probes.Forget(w.pod)
	defer w.probes.Stop()
	select {
	case <-ctx.Done():
		return
	case <-w.judged:
	}
	if w.after != nil {
		select {
		case <-ctx.Done():
			return
		case <-w.after:
		}
	}
	w.awaitRoom(ctx)
	for ctx.Err() == nil {
		back := w.turn(ctx)
		done := w.stepAside(ctx)
		if back(); done {
			return
		}
		w.rest(ctx)
	}
}

// So many pods start from nothing at a time: more would only share the same
// processors, and all of them the memory that a start needs. A start that takes
// longer no longer holds up others.
const (
	startsAtOnce = 8
	longestStart = 2 * time.Second
)

// turn waits until this pod may start from nothing, or is to end instead.
func (w *worker) turn(ctx context.Context) (back func()) {
	if w.state != syncing || w.seen.Sandbox() != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	w.in.interrupt = cancel
	ending := w.in.gone || w.refused || w.in.pod != nil && w.in.pod.DeletionTimestamp != nil
	w.mu.Unlock()
	if ending || w.pod.DeletionTimestamp != nil {
		return func() {}
	}
	return w.a.starts.Take(ctx)
}

// stepAside is step on a goroutine of its own: the stack that it needs goes with it,
// so that a pod at rest has but a small one.
func (w *worker) stepAside(ctx context.Context) (done bool) {
	err := <-guard.Spawn(func() error { done = w.step(ctx); return nil })
	if p := (*guard.Panic)(nil); errors.As(err, &p) {
		w.panicked(p)
	}
	return done
}

// rest waits for news or the next look.
func (w *worker) rest(ctx context.Context) {
	wait := w.retry
	if wait == 0 {
		half := w.a.cfg.SyncFrequency / 2
		wait = half + rand.N(2*half)
	}
	timer := w.a.Clock.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
			return
		case <-w.wake:
			if w.panics == 0 || w.ending() {
				return
			}
		}
	}
}

// retryIn asks for another step no later than d from now.
func (w *worker) retryIn(d time.Duration) {
	d = max(d, time.Millisecond)
	if w.retry == 0 || d < w.retry {
		w.retry = d
	}
}

// tidy forgets what it remembers of containers and sandboxes that are no more.
func (w *worker) tidy() {
	exists := map[string]bool{}
	for i := range w.seen.Containers {
		exists[w.seen.Containers[i].ID] = true
	}
	for i := range w.seen.Sandboxes {
		exists[w.seen.Sandboxes[i].ID] = true
	}
	w.a.owners.keep(w.uid, func(id string) bool { return exists[id] })
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.hooked, func(id string, _ bool) bool { return !exists[id] })
}

// step does what there is to do now and says whether the worker is done.
func (w *worker) step(ctx context.Context) (done bool) {
	w.retry = 0
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.open(cancel)
	began, first := time.Now(), !w.learned.IsZero() && w.seen.Sandbox() == nil
	err := guard.Call(func() (err error) {
		done, err = w.work(ctx)
		return err
	})
	w.a.metrics.steps.WithLabelValues(w.operation(first)).Observe(time.Since(began).Seconds())
	w.tidy()
	w.publish()
	w.trouble(ctx, err)
	return done
}

// operation is what upstream's metrics call the step that has ended; first: a new pod
// had no sandbox before it.
func (w *worker) operation(first bool) string {
	switch {
	case w.state != syncing:
		return "kill"
	case first:
		return "create"
	}
	return "sync"
}

// work is what a step does in the state that the pod is in.
func (w *worker) work(ctx context.Context) (done bool, err error) {
	if err := w.look(ctx); err != nil {
		return false, err
	}
	w.decide()
	switch w.state {
	case syncing:
		return w.live(ctx)
	case terminating:
		return w.terminate(ctx)
	}
	return w.bury()
}

// publish shows readers what is known now.
func (w *worker) publish() {
	w.snapshot.Store(new(w.seen.Clone()))
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.news)
	w.news = make(chan struct{})
}

// live syncs the pod and, when that shows it has finished, ends it.
func (w *worker) live(ctx context.Context) (done bool, err error) {
	if err := w.sync(ctx); err != nil {
		return false, err
	}
	if w.decide(); w.state == syncing {
		return false, nil
	}
	return w.terminate(ctx)
}

// trouble spaces out the steps that follow a failed one: 1 s doubled up to 10 s.
// A runtime that went away wakes the worker itself when it is back.
func (w *worker) trouble(ctx context.Context, err error) {
	if p := (*guard.Panic)(nil); errors.As(err, &p) {
		w.panicked(p)
		return
	}
	if w.panics > 0 {
		w.panics = 0
		w.a.guard.Well("pod", w.name())
	}
	if err == nil {
		w.errors = 0
		return
	}
	if errors.Is(err, context.Canceled) || ctx.Err() != nil {
		w.retryIn(time.Millisecond) // interrupted: see why
		return
	}
	if isUnavailable(err) {
		w.a.node.Poke()
	}
	w.stale = true
	w.retryIn(min(time.Second<<min(w.errors, 4), 10*time.Second))
	w.errors++
	w.log.Warn("pod step failed", zap.Error(err))
}

// open takes the inbox and lets it interrupt ctx.
func (w *worker) open(cancel context.CancelFunc) {
	w.mu.Lock()
	in := w.in
	w.in = inbox{interrupt: cancel}
	w.mu.Unlock()
	if in.pod != nil {
		w.refresh = w.refresh || !maps.Equal(in.pod.Labels, w.pod.Labels) || !maps.Equal(in.pod.Annotations, w.pod.Annotations)
		w.allocate(in.pod)
	} else if resize.Asked(&w.asked.Spec, &w.pod.Spec) {
		w.allocate(w.asked)
	}
	w.gone = w.gone || in.gone
	w.stale = w.stale || in.relist
	w.refresh = w.refresh || in.refresh
	if in.refused != nil && w.state == syncing {
		w.failure, w.hurry = in.refused, in.hurry
	}
	if in.arrived {
		w.lookAgain()
	}
	for name, r := range in.images {
		w.pulled(name, r)
	}
	for _, id := range in.collected {
		w.seen.Forget(id)
	}
	for _, ev := range in.events {
		w.apply(ev)
	}
}

// decide moves the pod along its road.
func (w *worker) decide() {
	if w.state != syncing {
		return
	}
	if w.failure == nil {
		w.failure = w.overdue()
	}
	if w.gone || w.pod.DeletionTimestamp != nil || w.failure != nil || status.Finished(w.pod.Status.Phase) ||
		w.reported != nil && status.Finished(w.reported.Phase) {
		w.state = terminating
		w.quiet.Store(true)
	}
}

// overdue is the failure of a pod past its activeDeadlineSeconds.
func (w *worker) overdue() *status.Failure {
	limit, start := w.pod.Spec.ActiveDeadlineSeconds, w.startTime()
	if limit == nil || start.IsZero() {
		return nil
	}
	rest := start.Add(time.Duration(*limit) * time.Second).Sub(w.a.Clock.Now())
	if rest > 0 {
		w.retryIn(rest)
		return nil
	}
	w.a.event(w.pod, "", corev1.EventTypeNormal, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
	return &status.Failure{Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}
}

func (w *worker) startTime() time.Time {
	switch {
	case w.reported != nil && w.reported.StartTime != nil:
		return w.reported.StartTime.Time
	case w.pod.Status.StartTime != nil:
		return w.pod.Status.StartTime.Time
	}
	return time.Time{}
}

// unhealthy tells of a failing probe.
func (w *worker) unhealthy(id string, kind probe.Kind, err error) {
	what := "failed"
	if unknown := (*probe.UnknownError)(nil); errors.As(err, &unknown) {
		what = "errored and resulted in unknown state"
	}
	w.probeEvent(id, "Unhealthy", "%s probe %s: %v", kind, what, err)
}

func (w *worker) probeEvent(id, reason, format string, args ...any) {
	seen := w.snapshot.Load()
	if w.quiet.Load() || seen == nil {
		return
	}
	if c := seen.ByID(id); c != nil {
		w.a.event(w.current.Load(), c.Name, corev1.EventTypeWarning, reason, format, args...)
	}
}
