package static

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/backoff"
)

const (
	// readPeriod is the interval at which the folder is read without a notification (upstream: fileCheckFrequency).
	readPeriod = 20 * time.Second
	// firstWait is the first pause after a failure to read the folder at the start. It doubles up to readPeriod.
	firstWait = 100 * time.Millisecond
	// settleTime is the time without changes before the folder is read, because a file may be half written.
	settleTime = 100 * time.Millisecond
	// reasonBroken is the reason of events about files (upstream's).
	reasonBroken = "FailedValidation"
)

// Node receives events about invalid files.
type Node interface {
	Event(eventType, reason, format string, args ...any)
}

// Deps are the dependencies of a Source; all but Notify are required.
type Deps struct {
	Clock clock.WithTicker
	Log   *zap.Logger
	Node  Node
	// RestoreStatuses sets the former statuses of the first pods.
	RestoreStatuses func(context.Context, []*corev1.Pod)
	// Failed is called when the problems have changed, with the files and their errors; empty: no problems.
	Failed func(message string)
	// Notify reports changes in a folder; nil: the function Notify.
	Notify func(dir string) (changed <-chan struct{}, stop func(), err error)
}

// Source reads the static pods of a folder.
type Source struct {
	Deps
	dir     *Dir
	updates chan []*corev1.Pod
	failed  string // the last argument of Failed; used only by Run
}

// NewSource returns a Source of a folder; without a path in config it has no pods.
func NewSource(deps Deps, config Config) *Source {
	if deps.Notify == nil {
		deps.Notify = Notify
	}
	return &Source{Deps: deps, dir: New(config), updates: make(chan []*corev1.Pod)}
}

// Updates returns all pods after each change, and at the start, even if there are none.
func (s *Source) Updates() <-chan []*corev1.Pod { return s.updates }

// Run reads the folder until that succeeds once, and then after each change, until ctx ends. It sends the first list
// even if it is empty: without it the agent does not know which running pods are orphaned.
func (s *Source) Run(ctx context.Context) {
	if s.dir.Path == "" {
		s.send(ctx, nil)
		return
	}
	changed, stop, err := s.Notify(s.dir.Path)
	if err != nil {
		s.Log.Warn("changes of static pods are detected late", zap.String("dir", s.dir.Path), zap.Error(err))
	} else {
		defer stop()
	}
	first, ok := s.read()
	for retry := (backoff.Retry{First: firstWait, Most: readPeriod}); !ok && retry.Wait(ctx, s.Clock); {
		first, ok = s.read()
	}
	if !ok {
		return
	}
	s.RestoreStatuses(ctx, first)
	if s.send(ctx, first) {
		s.follow(ctx, changed, first)
	}
}

// follow sends the pods whenever they have changed.
func (s *Source) follow(ctx context.Context, changed <-chan struct{}, last []*corev1.Pod) {
	look := s.Clock.NewTicker(readPeriod)
	defer look.Stop()
	pause := s.Clock.NewTimer(readPeriod)
	pause.Stop()
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			pause.Reset(settleTime)
			continue
		case <-pause.C():
		case <-look.C():
		}
		pods, ok := s.read()
		if !ok || slices.EqualFunc(pods, last, func(a, b *corev1.Pod) bool { return a.UID == b.UID }) {
			continue
		}
		if last = pods; !s.send(ctx, pods) {
			return
		}
	}
}

// read reads the folder and reports new problems. It returns false if the folder cannot be read.
func (s *Source) read() ([]*corev1.Pod, bool) {
	pods, problems, err := s.dir.Read()
	if err != nil {
		s.Log.Warn("static pods not read", zap.String("dir", s.dir.Path), zap.Error(err))
		return nil, false
	}
	for _, p := range problems {
		if p.Ignored {
			s.Log.Warn("part of a static pod is ignored", zap.String("file", p.File), zap.Error(p.Err))
			continue
		}
		s.Log.Error("file of a static pod ignored", zap.String("file", p.File), zap.Error(p.Err))
		s.Node.Event(corev1.EventTypeWarning, reasonBroken, "Static pod file %s: %v", p.File, p.Err)
	}
	if failed := s.dir.Failed(); failed != s.failed {
		s.failed = failed
		s.Failed(failed)
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
