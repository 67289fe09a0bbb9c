package static

import (
	"context"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/process/backoff"
)

const (
	// lookPeriod is how often the folder is read though nothing told of a change
	// (upstream: fileCheckFrequency).
	lookPeriod = 20 * time.Second
	// firstWait is how long a folder that cannot be read at the start is left alone,
	// doubled up to lookPeriod.
	firstWait = 100 * time.Millisecond
	// lookPause is how long files must lie still: one half written is no pod.
	lookPause = 100 * time.Millisecond
	// reasonBroken is why an event is about a file (upstream).
	reasonBroken = "FailedValidation"
)

// Node is whom a Source tells of files that are no pods.
type Node interface {
	Event(eventType, reason, format string, args ...any)
}

// Deps are what a Source works with; all but Notify are required.
type Deps struct {
	Clock clock.WithTicker
	Log   *zap.Logger
	Node  Node
	// Recall is given the first pods, to say what is known of their past.
	Recall func(context.Context, []*corev1.Pod)
	// Notify tells of changes in a folder; nil: the function Notify.
	Notify func(dir string) (changed <-chan struct{}, stop func(), err error)
}

// Source tells of the static pods in a folder.
type Source struct {
	Deps
	dir     *Dir
	updates chan []*corev1.Pod
}

// NewSource makes one of a folder; without a path in config there is none, and no
// pods.
func NewSource(deps Deps, config Config) *Source {
	if deps.Notify == nil {
		deps.Notify = Notify
	}
	return &Source{Deps: deps, dir: New(config), updates: make(chan []*corev1.Pod)}
}

// Updates are all pods each time, and first, if only none, what there is at the
// start.
func (s *Source) Updates() <-chan []*corev1.Pod { return s.updates }

// Run reads the folder until that works once, and again whenever it may have changed,
// until ctx ends. The first pods, if only none, are always told: until then nobody can
// say which pods that run are still wanted.
func (s *Source) Run(ctx context.Context) {
	if s.dir.Path == "" {
		s.send(ctx, nil)
		return
	}
	changed, stop, err := s.Notify(s.dir.Path)
	if err != nil {
		s.Log.Warn("changes of static pods are noticed late", zap.String("dir", s.dir.Path), zap.Error(err))
	} else {
		defer stop()
	}
	first, ok := s.read()
	for retry := (backoff.Retry{First: firstWait, Most: lookPeriod}); !ok && retry.Wait(ctx, s.Clock); {
		first, ok = s.read()
	}
	if !ok {
		return
	}
	s.Recall(ctx, first)
	if s.send(ctx, first) {
		s.follow(ctx, changed, first)
	}
}

// follow tells of the pods whenever they are others than last.
func (s *Source) follow(ctx context.Context, changed <-chan struct{}, last []*corev1.Pod) {
	look := s.Clock.NewTicker(lookPeriod)
	defer look.Stop()
	pause := s.Clock.NewTimer(lookPeriod)
	pause.Stop()
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			pause.Reset(lookPause)
			continue
		case <-pause.C():
		case <-look.C():
		}
		pods, ok := s.read()
		if !ok || sameUIDs(pods, last) {
			continue
		}
		if last = pods; !s.send(ctx, pods) {
			return
		}
	}
}

func sameUIDs(a, b []*corev1.Pod) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].UID != b[i].UID {
			return false
		}
	}
	return true
}

// read tells of what is wrong in the folder; false: it cannot be read.
func (s *Source) read() ([]*corev1.Pod, bool) {
	pods, problems, err := s.dir.Read()
	if err != nil {
		s.Log.Warn("static pods not read", zap.String("dir", s.dir.Path), zap.Error(err))
		return nil, false
	}
	for _, p := range problems {
		if p.Ignored {
			s.Log.Warn("part of a static pod has no meaning", zap.String("file", p.File), zap.Error(p.Err))
			continue
		}
		s.Log.Error("file of a static pod ignored", zap.String("file", p.File), zap.Error(p.Err))
		s.Node.Event(corev1.EventTypeWarning, reasonBroken, "Static pod file %s: %v", p.File, p.Err)
	}
	return pods, true
}

func (s *Source) send(ctx context.Context, pods []*corev1.Pod) bool {
	select {
	case <-ctx.Done():
		return false
	case s.updates <- pods:
		return true
	}
}
