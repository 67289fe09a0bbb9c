package logs

import (
	"context"
	"iter"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

// Written is a log that a container writes.
type Written struct {
	Path          string
	Container, ID string      // its name and id
	Log           *zap.Logger // of the pod
}

// RotatorDeps are what a Rotator works with.
type RotatorDeps struct {
	Clock   clock.WithTicker
	Metrics prometheus.Registerer
	// Running are the logs of the containers that run.
	Running iter.Seq[Written]
	// Reopen has a container go on in a new file.
	Reopen func(ctx context.Context, id string) error
}

// Rotator keeps the logs of running containers within bounds. What it looks at
// every few seconds is one stat a container; the disk is written to only where a
// log has grown too long.
type Rotator struct {
	RotatorDeps
	cfg     Rotation
	rotated prometheus.Counter
}

// NewRotator registers the metric; Run begins.
func NewRotator(deps RotatorDeps, cfg Rotation) (*Rotator, error) {
	r := &Rotator{RotatorDeps: deps, cfg: cfg, rotated: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "monopod_container_log_rotations_total", Help: "Logs of containers that were rotated.",
	})}
	return r, deps.Metrics.Register(r.rotated)
}

// Run rotates one log after another until ctx ends.
func (r *Rotator) Run(ctx context.Context) {
	if r.cfg.MaxSize < 0 {
		return
	}
	ticker := r.Clock.NewTicker(r.cfg.Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			r.pass(ctx)
		}
	}
}

func (r *Rotator) pass(ctx context.Context) {
	for w := range r.Running {
		if ctx.Err() != nil {
			return
		}
		r.look(ctx, w)
	}
}

func (r *Rotator) look(ctx context.Context, w Written) {
	if !r.cfg.Due(w.Path) {
		return
	}
	err := r.cfg.Rotate(w.Path, r.Clock.Now(), func() error { return r.Reopen(ctx, w.ID) })
	if err != nil && ctx.Err() == nil {
		w.Log.Warn("log not rotated", zap.String("container", w.Container), zap.Error(err))
		return
	}
	r.rotated.Inc()
}
