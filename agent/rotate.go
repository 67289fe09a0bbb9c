package agent

import (
	"context"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"monopod/agent/spec"
	"monopod/agent/status"
)

// rotator keeps the logs of running containers within bounds. What it looks at
// every few seconds is one stat a container; the disk is written to only where a
// log has grown too long.
type rotator struct {
	a       *Agent
	rotated prometheus.Counter
}

func newRotator(a *Agent) (*rotator, error) {
	r := &rotator{a: a, rotated: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "monopod_container_log_rotations_total", Help: "Logs of containers that were rotated.",
	})}
	return r, a.Metrics.Register(r.rotated)
}

// run rotates one log after another until ctx ends.
func (r *rotator) run(ctx context.Context) {
	if r.a.cfg.Logs.MaxSize < 0 {
		return
	}
	ticker := r.a.Clock.NewTicker(r.a.cfg.Logs.Period)
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

func (r *rotator) pass(ctx context.Context) {
	for _, w := range r.a.all() {
		seen := w.snapshot.Load()
		if seen == nil {
			continue
		}
		for i := range seen.Containers {
			if c := &seen.Containers[i]; c.State == status.Running && ctx.Err() == nil {
				r.look(ctx, w, c)
			}
		}
	}
}

func (r *rotator) look(ctx context.Context, w *worker, c *status.Container) {
	path := filepath.Join(spec.LogDir(r.a.logsDir(), w.current.Load()), spec.LogPath(c.Name, c.Attempt))
	if !r.a.cfg.Logs.Due(path) {
		return
	}
	err := r.a.cfg.Logs.Rotate(path, r.a.Clock.Now(), func() error { return r.a.Runtime.ReopenContainerLog(ctx, c.ID) })
	if err != nil && ctx.Err() == nil {
		w.log.Warn("log not rotated", zap.String("container", c.Name), zap.Error(err))
		return
	}
	r.rotated.Inc()
}
