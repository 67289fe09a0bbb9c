package cpumanager

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/cpuset"

	"monopod/apiserver/kit/guard"
)

// Container is a running container.
type Container struct {
	Pod      types.UID
	Name, ID string
}

// PinnerDeps are a Pinner's dependencies; all but Period are required.
type PinnerDeps struct {
	Running func() []Container
	CPUs    func(pod types.UID, container string) cpuset.CPUSet
	Update  func(ctx context.Context, id, cpus string) error
	Clock   clock.WithTicker
	Log     *zap.Logger
	Period  time.Duration // 0: 10 s
}

// Pinner updates running containers in the runtime when their CPUs change, and retries failed updates.
type Pinner struct {
	PinnerDeps
	wake chan struct{}

	mu      sync.Mutex        // guards the fields below
	applied map[string]string // the CPUs of each container in the runtime, by ID
}

// NewPinner returns a Pinner. The caller calls Run.
func NewPinner(deps PinnerDeps) *Pinner {
	if deps.Period == 0 {
		deps.Period = defaultPeriod
	}
	return &Pinner{PinnerDeps: deps, wake: make(chan struct{}, 1), applied: map[string]string{}}
}

// Poke makes Run verify the containers now. It does not block.
func (p *Pinner) Poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run verifies containers until ctx ends.
func (p *Pinner) Run(ctx context.Context) {
	ticker := p.Clock.NewTicker(p.Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		case <-p.wake:
		}
		p.Reconcile(ctx)
	}
}

// Created records the CPUs with which a container was created.
func (p *Pinner) Created(id, cpus string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applied[id] = cpus
}

// Started updates a container that has just started if its CPUs have changed since its creation.
func (p *Pinner) Started(ctx context.Context, c Container) {
	if err := p.pin(ctx, c); err != nil {
		p.Poke()
	}
}

// Reconcile updates the containers whose CPUs differ; ok means that all updates succeeded.
func (p *Pinner) Reconcile(ctx context.Context) (ok bool) {
	list := p.Running()
	// Forget containers that do not run. A container that was created and has not started may be updated once more.
	runs := make(map[string]bool, len(list))
	for _, c := range list {
		runs[c.ID] = true
	}
	p.mu.Lock()
	for id := range p.applied {
		if !runs[id] {
			delete(p.applied, id)
		}
	}
	p.mu.Unlock()
	var g guard.Group
	g.SetLimit(concurrentUpdates)
	for _, c := range list {
		g.Do(func() error { return p.pin(ctx, c) })
	}
	return g.Wait() == nil
}

// concurrentUpdates is the number of concurrent updates. The runtime needs some 20 ms for each.
const concurrentUpdates = 4

func (p *Pinner) pin(ctx context.Context, c Container) error {
	want := p.CPUs(c.Pod, c.Name).String()
	p.mu.Lock()
	same := p.applied[c.ID] == want
	p.mu.Unlock()
	if same || want == "" {
		return nil
	}
	if err := p.Update(ctx, c.ID, want); err != nil {
		if ctx.Err() == nil {
			p.Log.Warn("failed to update the CPUs of a container", zap.String("container", c.Name), zap.String("id", c.ID),
				zap.String("cpus", want), zap.Error(err))
		}
		return err
	}
	p.Created(c.ID, want)
	return nil
}
