package follow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/guard"
)

// Backoff between restarts of a failing controller. A controller that has run for restartStable is healthy again.
const (
	minRestart    = time.Second
	maxRestart    = 5 * time.Minute
	restartStable = 10 * time.Second
)

var (
	errNotStarted = errors.New("not started")
	errReturned   = errors.New("returned before its context ended")
)

// Supervisor keeps one controller running until ctx ends.
type Supervisor struct {
	ctrl Controller
	deps Deps

	mu      sync.Mutex // guards the fields below
	failure error      // last failure; nil: none
	since   time.Time  // start of the current run; zero while it does not run
	retry   backoff.Retry
}

// Supervise returns a Supervisor of ctrl.
func Supervise(ctrl Controller, deps Deps) *Supervisor {
	if deps.Guard == nil {
		deps.Guard = guard.Logging(deps.Log)
	}
	return &Supervisor{ctrl: ctrl, deps: deps, failure: errNotStarted,
		retry: backoff.Retry{First: minRestart, Most: maxRestart}}
}

// Name returns the controller's name.
func (s *Supervisor) Name() string { return s.ctrl.Name() }

// Check returns an error if the controller is not running, or has failed and not run for 10 s since.
func (s *Supervisor) Check(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stable() {
		return nil
	}
	return s.failure
}

func (s *Supervisor) stable() bool {
	return !s.since.IsZero() && s.deps.Clock.Since(s.since) >= restartStable
}

// Run runs the controller and restarts it, after 1 s to 5 min, whenever it fails or panics. It returns nil when
// ctx ends.
func (s *Supervisor) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		s.mu.Lock()
		s.since = s.deps.Clock.Now()
		if errors.Is(s.failure, errNotStarted) {
			s.failure = nil
		}
		s.mu.Unlock()
		err := guard.Call(func() error { return s.ctrl.Run(ctx) })
		if ctx.Err() != nil {
			break
		}
		backoff.Sleep(ctx, s.deps.Clock, s.failed(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure, s.since = errNotStarted, time.Time{}
	return nil
}

// failed records why a run ended and returns how long to wait.
func (s *Supervisor) failed(err error) time.Duration {
	if err == nil {
		err = errReturned
	}
	cause := "error"
	if p := (*guard.Panic)(nil); errors.As(err, &p) {
		cause = "panic"
		s.deps.Guard.Caught("controller", s.ctrl.Name(), p)
	}
	s.mu.Lock()
	if s.stable() {
		s.retry.Reset()
	}
	delay := s.retry.Next()
	s.failure, s.since = fmt.Errorf("controller failed: %w", err), time.Time{}
	s.mu.Unlock()
	s.deps.Metrics.restarts.WithLabelValues(s.ctrl.Name(), cause).Inc()
	s.deps.Log.Error("controller failed, restarting it", zap.String("controller", s.ctrl.Name()),
		zap.Duration("in", delay), zap.Error(err))
	return delay
}
