package logs

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver/process/guard"
)

// While a file grows it is looked at so often: sooner where it would reach its bound
// before.
const (
	oftenest  = 100 * time.Millisecond
	whileGrow = 500 * time.Millisecond
)

// Written is what a container writes on the node's disk by itself.
type Written struct {
	Path          string      // its log
	Message       string      // its termination message; empty: it has none
	Container, ID string      // its name and id
	Log           *zap.Logger // of the pod
}

// Notifier tells of the next write to a file, so that one that nobody writes to costs
// nothing.
type Notifier interface {
	// Arm has the path sent to Changed, once, when the file is written to.
	Arm(path string) error
	Disarm(path string)
	Changed() <-chan string
	// Run reads until ctx ends.
	Run(ctx context.Context)
}

// RotatorDeps are what a Rotator works with.
type RotatorDeps struct {
	Clock   clock.WithTicker
	Metrics prometheus.Registerer
	// Running are what the containers write that run.
	Running iter.Seq[Written]
	// Reopen has a container go on in a new file.
	Reopen func(ctx context.Context, id string) error
	// Notify makes the Notifier; nil: growth is found out when it is looked for.
	Notify func() (Notifier, error)
	Log    *zap.Logger
	Guard  *guard.Guard // nil: panics are recovered and not reported
}

// Rotator keeps the logs and termination messages of running containers within bounds.
// All of them are looked at every few seconds, one stat a file, and those that grow as
// often as they do; the disk is written to only where a file has grown too long.
type Rotator struct {
	RotatorDeps
	cfg     Rotation
	rotated prometheus.Counter
	poke    chan struct{}
	packer  chan struct{} // holds who compresses

	// What follows belongs to the goroutine of Run.
	notify Notifier         // nil: there is none
	files  map[string]*file // by path
}

// file is one that is kept within a bound.
type file struct {
	Written
	path    string
	message bool
	here    bool // a container that runs writes it; else it is forgotten

	size    int64
	at      time.Time   // when it had that size
	next    time.Time   // when it is looked at again; zero: with all others
	busy    atomic.Bool // it is being put aside
	mended  atomic.Bool // it was: what is known of its size no longer holds
	packing atomic.Bool // what was put aside of it is being compressed
}

// NewRotator registers the metric; Run begins.
func NewRotator(deps RotatorDeps, cfg Rotation) (*Rotator, error) {
	r := &Rotator{RotatorDeps: deps, cfg: cfg, poke: make(chan struct{}, 1), packer: make(chan struct{}, 1), files: map[string]*file{}, rotated: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "monopod_container_log_rotations_total", Help: "Logs of containers that were rotated.",
	})}
	return r, deps.Metrics.Register(r.rotated)
}

// Poke says that there are other containers than before.
func (r *Rotator) Poke() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// Run keeps files within bounds until ctx ends.
func (r *Rotator) Run(ctx context.Context) {
	parts := []func(context.Context){r.follow}
	if r.Notify != nil {
		notify, err := r.Notify()
		if err != nil {
			r.Log.Warn("logs that begin to grow are noticed late", zap.Duration("interval", r.cfg.Period), zap.Error(err))
		} else {
			r.notify = notify
			parts = append(parts, notify.Run)
		}
	}
	guard.Together(ctx, parts...)
}

func (r *Rotator) follow(ctx context.Context) {
	var cuts sync.WaitGroup
	defer cuts.Wait()
	ticker := r.Clock.NewTicker(r.cfg.Period)
	defer ticker.Stop()
	soon := r.Clock.NewTimer(r.cfg.Period)
	defer soon.Stop()
	var changed <-chan string
	if r.notify != nil {
		changed = r.notify.Changed()
	}
	r.Poke()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			r.all(ctx, &cuts)
		case <-r.poke:
			r.all(ctx, &cuts)
		case path := <-changed:
			if f := r.files[path]; f != nil {
				f.next = r.Clock.Now().Add(oftenest)
				r.look(ctx, &cuts, f)
			}
		case <-soon.C():
			r.due(ctx, &cuts)
		}
		soon.Stop()
		if next, ok := r.earliest(); ok {
			soon.Reset(max(next.Sub(r.Clock.Now()), time.Millisecond))
		}
	}
}

// all looks at every file, and forgets those that no running container writes.
func (r *Rotator) all(ctx context.Context, cuts *sync.WaitGroup) {
	for _, f := range r.files {
		f.here = false
	}
	for w := range r.Running {
		r.note(w, w.Path, false)
		if w.Message != "" {
			r.note(w, w.Message, true)
		}
	}
	for path, f := range r.files {
		if f.here {
			r.look(ctx, cuts, f)
			continue
		}
		delete(r.files, path)
		if r.notify != nil {
			r.notify.Disarm(path)
		}
	}
}

func (r *Rotator) note(w Written, path string, message bool) {
	f := r.files[path]
	if f == nil {
		f = &file{path: path, message: message}
		f.mended.Store(true)
		r.files[path] = f
	}
	f.Written, f.here = w, true
}

// due looks at the files whose time has come.
func (r *Rotator) due(ctx context.Context, cuts *sync.WaitGroup) {
	now := r.Clock.Now()
	for _, f := range r.files {
		if !f.next.IsZero() && !f.next.After(now) {
			r.look(ctx, cuts, f)
		}
	}
}

func (r *Rotator) earliest() (next time.Time, ok bool) {
	for _, f := range r.files {
		if !f.next.IsZero() && (!ok || f.next.Before(next)) {
			next, ok = f.next, true
		}
	}
	return next, ok
}

// look sees to a file that is too long and decides when to look again: one that has
// grown is watched, one that has not is waited for.
func (r *Rotator) look(ctx context.Context, cuts *sync.WaitGroup, f *file) {
	size, bound := r.measure(f)
	now := r.Clock.Now()
	if bound < 0 {
		f.next = time.Time{}
		return
	}
	grown, since, fresh := size-f.size, now.Sub(f.at), f.mended.Swap(false)
	f.size, f.at = size, now
	if size >= bound {
		f.next = now.Add(oftenest)
		r.shorten(ctx, cuts, f)
		return
	}
	if fresh { // how fast it grows is yet to be seen
		f.next = now.Add(oftenest)
		return
	}
	if grown > 0 {
		left := time.Duration(float64(bound-size) / float64(grown) * float64(since))
		f.next = now.Add(min(max(left/2, oftenest), whileGrow))
		return
	}
	f.next = time.Time{}
	if r.notify == nil {
		return
	}
	if r.notify.Arm(f.path) != nil {
		return // it is not there yet: the next look at all will see it
	}
	if again, _ := r.measure(f); again != size { // it was written to meanwhile
		f.next = now.Add(oftenest)
	}
}

// measure is what a file takes, and what it may; below 0: any amount.
func (r *Rotator) measure(f *file) (size, bound int64) {
	if f.message {
		return allocated(f.path), messageBound
	}
	return length(f.path), r.cfg.MaxSize
}

// shorten brings a file within its bound. A log is put aside on another goroutine: the
// runtime may take its time.
func (r *Rotator) shorten(ctx context.Context, cuts *sync.WaitGroup, f *file) {
	if f.message {
		f.mended.Store(true)
		if err := shortenMessage(f.path); err != nil {
			f.Log.Warn("termination message not shortened", zap.String("container", f.Container), zap.Error(err))
		}
		return
	}
	if f.busy.Swap(true) {
		return
	}
	w := f.Written
	r.Guard.Go(cuts, "logs", func() {
		r.cut(ctx, f, w)
		r.compress(ctx, f, w)
	})
}

func (r *Rotator) cut(ctx context.Context, f *file, w Written) {
	defer f.busy.Store(false)
	defer f.mended.Store(true)
	err := r.cfg.Cut(w.Path, r.Clock.Now(), func() error { return r.Reopen(ctx, w.ID) })
	if err != nil && ctx.Err() == nil {
		w.Log.Warn("log not rotated", zap.String("container", w.Container), zap.Error(err))
		return
	}
	r.rotated.Inc()
}

// compress compresses what was put aside, of one log at a time. A log that grows
// faster than that is cut all the same: its oldest file is removed as it is.
func (r *Rotator) compress(ctx context.Context, f *file, w Written) {
	if f.packing.Swap(true) {
		return // whoever is at it sees the new file, too
	}
	defer f.packing.Store(false)
	for more := true; more; {
		select {
		case <-ctx.Done():
			return
		case r.packer <- struct{}{}:
		}
		var err error
		more, err = r.cfg.Compress(w.Path)
		<-r.packer
		if err != nil {
			w.Log.Warn("log not compressed", zap.String("container", w.Container), zap.Error(err))
		}
	}
}
