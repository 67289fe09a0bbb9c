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

	"monopod/apiserver/kit/guard"
)

// The interval of checks of a growing file: half of the time in which it would reach its bound, within these limits.
const (
	minInterval        = 100 * time.Millisecond
	maxGrowingInterval = 500 * time.Millisecond
)

// ContainerFiles are the files that a container writes to the node's disk through the runtime.
type ContainerFiles struct {
	Path          string // of the log
	Message       string // path of the termination message; empty: none
	Container, ID string
	Log           *zap.Logger // of the pod
}

// Notifier reports the next write to a file, so that idle files need not be polled.
type Notifier interface {
	// Arm makes the Notifier send the path to Changed after the next write to the file, once.
	Arm(path string) error
	Disarm(path string)
	Changed() <-chan string
	// Run runs the Notifier until ctx ends.
	Run(ctx context.Context)
}

// RotatorDeps are a Rotator's dependencies.
type RotatorDeps struct {
	Clock   clock.WithTicker
	Metrics prometheus.Registerer
	// Running yields the files of running containers.
	Running iter.Seq[ContainerFiles]
	// Reopen makes the runtime continue a container's log in a new file.
	Reopen func(ctx context.Context, id string) error
	// Notify creates the Notifier; nil: growth is detected only by polling.
	Notify func() (Notifier, error)
	Log    *zap.Logger
	Guard  *guard.Guard // nil: panics are recovered and not reported
}

// Rotator keeps the logs and termination messages of running containers within bounds. It checks all files
// periodically, with one stat each, and growing files more often. It writes to the disk only if a file is too long.
type Rotator struct {
	RotatorDeps
	cfg        Rotation
	rotated    prometheus.Counter
	poke       chan struct{}
	compressor chan struct{} // holds a token during a compression

	// The fields below belong to the goroutine of Run.
	notify Notifier         // nil: none
	files  map[string]*file // by path
	listed time.Time        // time of the next list of new containers; zero: none is due
}

// file is a log or a termination message of a running container.
type file struct {
	ContainerFiles
	path    string
	message bool
	present bool // a running container writes it; otherwise it is dropped
	armed   bool // the Notifier reports its next write

	size        int64
	at          time.Time   // when it had that size
	next        time.Time   // time of the next check; zero: with all others
	rotating    atomic.Bool // it is being rotated
	resized     atomic.Bool // it was rotated: the known size is outdated
	compressing atomic.Bool // its rotated files are being compressed
}

// NewRotator returns a Rotator that does nothing until Run is called. It registers the metric.
func NewRotator(deps RotatorDeps, cfg Rotation) (*Rotator, error) {
	r := &Rotator{RotatorDeps: deps, cfg: cfg, poke: make(chan struct{}, 1), compressor: make(chan struct{}, 1),
		files: map[string]*file{}, rotated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monopod_container_log_rotations_total", Help: "Logs of containers that were rotated.",
		})}
	return r, deps.Metrics.Register(r.rotated)
}

// Poke makes the Rotator check the files of new containers soon.
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
			r.Log.Warn("cannot watch logs with inotify: growth is detected only by polling",
				zap.Duration("interval", r.cfg.Period), zap.Error(err))
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
			r.list()
			for _, f := range r.files {
				r.check(ctx, &cuts, f)
			}
		case <-r.poke: // delayed, because many containers may start at the same time
			if r.listed.IsZero() {
				r.listed = r.Clock.Now().Add(minInterval)
			}
		case path := <-changed:
			if f := r.files[path]; f != nil {
				f.armed = false
				f.next = r.Clock.Now().Add(minInterval)
				r.check(ctx, &cuts, f)
			}
		case <-soon.C():
			r.checkDue(ctx, &cuts)
		}
		soon.Stop()
		next := r.listed
		for _, f := range r.files {
			if !f.next.IsZero() && (next.IsZero() || f.next.Before(next)) {
				next = f.next
			}
		}
		if !next.IsZero() {
			soon.Reset(max(next.Sub(r.Clock.Now()), time.Millisecond))
		}
	}
}

// list adds the files of new containers, and removes those of containers that no longer run.
func (r *Rotator) list() {
	for _, f := range r.files {
		f.present = false
	}
	for w := range r.Running {
		r.add(w, w.Path, false)
		if w.Message != "" {
			r.add(w, w.Message, true)
		}
	}
	for path, f := range r.files {
		if f.present {
			continue
		}
		delete(r.files, path)
		if r.notify != nil {
			r.notify.Disarm(path)
		}
	}
}

func (r *Rotator) add(w ContainerFiles, path string, message bool) {
	f := r.files[path]
	if f == nil {
		f = &file{path: path, message: message}
		f.resized.Store(true)
		r.files[path] = f
	}
	f.ContainerFiles, f.present = w, true
}

// checkDue checks the files that are due.
func (r *Rotator) checkDue(ctx context.Context, cuts *sync.WaitGroup) {
	now := r.Clock.Now()
	if !r.listed.IsZero() && !r.listed.After(now) {
		r.listed = time.Time{}
		r.list()
		for _, f := range r.files {
			if !f.armed && f.next.IsZero() { // neither watched nor polled: of a new container
				r.check(ctx, cuts, f)
			}
		}
	}
	for _, f := range r.files {
		if !f.next.IsZero() && !f.next.After(now) {
			r.check(ctx, cuts, f)
		}
	}
}

// check shortens a file that is too long, and decides when to check it again. It polls a growing file; an idle file
// waits for the Notifier.
func (r *Rotator) check(ctx context.Context, cuts *sync.WaitGroup, f *file) {
	size, bound := r.measure(f)
	now := r.Clock.Now()
	if bound < 0 {
		f.next = time.Time{}
		return
	}
	grown, since, fresh := size-f.size, now.Sub(f.at), f.resized.Swap(false)
	f.size, f.at = size, now
	if size >= bound {
		f.next = now.Add(minInterval)
		r.shorten(ctx, cuts, f)
		return
	}
	if fresh && (grown > 0 || r.notify == nil) { // its rate of growth is not known yet
		f.next = now.Add(minInterval)
		return
	}
	if grown > 0 {
		left := time.Duration(float64(bound-size) / float64(grown) * float64(since))
		f.next = now.Add(min(max(left/2, minInterval), maxGrowingInterval))
		return
	}
	f.next = time.Time{}
	if r.notify == nil {
		return
	}
	if f.armed = r.notify.Arm(f.path) == nil; !f.armed {
		return // the file does not exist yet: the next check of all files finds it
	}
	if again, _ := r.measure(f); again != size { // it was written to meanwhile
		f.next = now.Add(minInterval)
	}
}

// measure returns a file's size and its maximum; negative: no maximum.
func (r *Rotator) measure(f *file) (size, bound int64) {
	if f.message {
		return allocated(f.path), messageBound
	}
	return length(f.path), r.cfg.MaxSize
}

// shorten shortens a termination message, or rotates a log on another goroutine, because the runtime may be slow.
func (r *Rotator) shorten(ctx context.Context, cuts *sync.WaitGroup, f *file) {
	if f.message {
		f.resized.Store(true)
		if err := shortenMessage(f.path); err != nil {
			f.Log.Warn("failed to shorten a termination message", zap.String("container", f.Container), zap.Error(err))
		}
		return
	}
	if f.rotating.Swap(true) {
		return
	}
	w := f.ContainerFiles
	r.Guard.Go(cuts, "logs", func() {
		r.rotate(ctx, f, w)
		r.compress(ctx, f, w)
	})
}

func (r *Rotator) rotate(ctx context.Context, f *file, w ContainerFiles) {
	defer f.rotating.Store(false)
	defer f.resized.Store(true)
	err := r.cfg.Cut(w.Path, r.Clock.Now(), func() error { return r.Reopen(ctx, w.ID) })
	if err != nil && ctx.Err() == nil {
		w.Log.Warn("failed to rotate a log", zap.String("container", w.Container), zap.Error(err))
		return
	}
	r.rotated.Inc()
}

// compress compresses the rotated files, of one log at a time. A log that grows faster is still rotated, and its oldest
// file is removed uncompressed.
func (r *Rotator) compress(ctx context.Context, f *file, w ContainerFiles) {
	if f.compressing.Swap(true) {
		return // the running compression also sees the new file
	}
	defer f.compressing.Store(false)
	for more := true; more; {
		select {
		case <-ctx.Done():
			return
		case r.compressor <- struct{}{}:
		}
		var err error
		more, err = r.cfg.Compress(w.Path)
		<-r.compressor
		if err != nil {
			w.Log.Warn("failed to compress a log", zap.String("container", w.Container), zap.Error(err))
		}
	}
}
