package cpumanager

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/cpuset"

	"monopod/apiserver/process/guard"
)

// Container is one that runs.
type Container struct {
	Pod      types.UID
	Name, ID string
}

// PinnerDeps are what a Pinner works with; all but Period are required.
type PinnerDeps struct {
	Running func() []Container
	CPUs    func(pod types.UID, container string) cpuset.CPUSet
	Move    func(ctx context.Context, id, cpus string) error
	Clock   clock.WithTicker
	Log     *zap.Logger
	Period  time.Duration // 0: 10 s
}

// Pinner moves containers that run to the processors that they are to run on, when
// those change: at once, and again later where that failed. It tells the runtime
// of a container only when it has not told it the same before.
type Pinner struct {
	PinnerDeps
	wake chan struct{}

	mu   sync.Mutex        // guards what follows
	told map[string]string // where the runtime has each container, by id
}

// NewPinner returns one that does not run yet.
func NewPinner(deps PinnerDeps) *Pinner {
	if deps.Period == 0 {
		deps.Period = defaultPeriod
	}
	return &Pinner{PinnerDeps: deps, wake: make(chan struct{}, 1), told: map[string]string{}}
}

// Poke has the containers looked at now. It does not wait.
func (p *Pinner) Poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
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
		p.Pass(ctx)
	}
}

// Made notes with which processors a container was made.
func (p *Pinner) Made(id, cpus string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[id] = cpus
}

// Started moves a container that has just started, if the processors are others by
// now than those it was made with.
func (p *Pinner) Started(ctx context.Context, c Container) {
	if err := p.pin(ctx, c); err != nil {
		p.Poke()
	}
}

// Pass moves those that are not where they should be; ok says that all are now.
func (p *Pinner) Pass(ctx context.Context) (ok bool) {
	list := p.Running()
	p.forget(list)
	var g guard.Group
	g.SetLimit(moves)
	for _, c := range list {
		g.Do(func() error { return p.pin(ctx, c) })
	}
	return g.Wait() == nil
}

// moves is how many containers are moved at a time: each takes the runtime some
// 20 ms.
const moves = 4

// forget drops containers that are gone. One that was made and has not started yet
// is told once more, at worst.
func (p *Pinner) forget(list []Container) {
	runs := make(map[string]bool, len(list))
	for _, c := range list {
		runs[c.ID] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.told {
		if !runs[id] {
			delete(p.told, id)
		}
	}
}

func (p *Pinner) pin(ctx context.Context, c Container) error {
	want := p.CPUs(c.Pod, c.Name).String()
	p.mu.Lock()
	same := p.told[c.ID] == want
	p.mu.Unlock()
	if same || want == "" {
		return nil
	}
	if err := p.Move(ctx, c.ID, want); err != nil {
		if ctx.Err() == nil {
			p.Log.Warn("a container is not moved to its processors", zap.String("container", c.Name), zap.String("id", c.ID), zap.String("cpus", want), zap.Error(err))
		}
		return err
	}
	p.Made(c.ID, want)
	return nil
}
