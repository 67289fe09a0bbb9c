package controllers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/record"
)

// startJitter is the maximum delay between the starts of two controllers. Upstream's takes seconds, which would be
// most of our start.
const startJitter = 2 * time.Millisecond

// Deps of a Manager. Client is required. The other fields default to the real clock, no logs, and unregistered metrics.
type Deps struct {
	Client  client.Client
	Clock   clock.WithTicker
	Log     *zap.Logger
	Metrics prometheus.Registerer
}

// Check is the health check of one controller.
type Check struct {
	Name  string
	Check func(ctx context.Context) error
}

// Debugger is a controller that serves its state at /debug/controllers/<name>.
type Debugger interface {
	DebuggingHandler() http.Handler
}

// Manager runs controllers.
type Manager struct {
	deps    follow.Deps
	cfg     Config
	entries []Entry

	running   []*follow.Supervisor
	debugging map[string]http.Handler
	recorders map[string]*lazyRecorder
	events    *record.Metrics
}

// New creates the controllers that cfg enables, without starting them.
func New(deps Deps, cfg Config) (*Manager, error) { return newManager(deps, cfg, All) }

func newManager(deps Deps, cfg Config, all func(*Config) []Entry) (*Manager, error) {
	if deps.Client == nil {
		return nil, errors.New("controllers: Deps.Client is missing")
	}
	if cfg.Kinds == nil {
		return nil, errors.New(
			"controllers: Config.Kinds is required: without it the garbage collector would collect nothing")
	}
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	if deps.Log == nil {
		deps.Log = zap.NewNop()
	}
	metrics, err := follow.NewMetrics(deps.Metrics)
	if err != nil {
		return nil, err
	}
	panics, err := guard.New(deps.Log, deps.Clock, deps.Metrics)
	if err != nil {
		return nil, err
	}
	events, err := record.NewMetrics(deps.Metrics)
	if err != nil {
		return nil, err
	}
	entries, err := enabled(all(&cfg), cfg.Controllers)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		deps: follow.Deps{Client: follow.Tracking(deps.Client, deps.Clock), Clock: deps.Clock, Log: deps.Log,
			Metrics: metrics, Guard: panics, Jumps: &follow.Jumps{}},
		cfg: cfg, entries: entries,
		debugging: map[string]http.Handler{},
		recorders: map[string]*lazyRecorder{},
		events:    events,
	}
	return m, m.make()
}

func (m *Manager) make() error {
	for _, e := range m.entries {
		deps := m.deps
		deps.Log = deps.Log.Named(e.Name)
		events := &lazyRecorder{}
		c, err := e.New(deps, events)
		if err != nil {
			return fmt.Errorf("controller %s: %w", e.Name, err)
		}
		if e.Component != "" {
			m.recorders[e.Component] = events
		}
		if d, ok := c.(Debugger); ok {
			m.debugging[e.Name] = d.DebuggingHandler()
		}
		m.running = append(m.running, follow.Supervise(c, deps))
	}
	return nil
}

// Supervise returns a supervisor of a controller that the manager does not run: the supervisor restarts it in the same
// way.
func (m *Manager) Supervise(name string, new func(deps follow.Deps) follow.Controller) *follow.Supervisor {
	deps := m.deps
	deps.Log = deps.Log.Named(name)
	return follow.Supervise(new(deps), deps)
}

// Checks returns the health checks of every enabled controller, by name, in the order of their start.
func (m *Manager) Checks() []Check {
	out := make([]Check, len(m.running))
	for i, s := range m.running {
		out[i] = Check{Name: s.Name(), Check: s.Check}
	}
	return out
}

// Configz returns the effective configuration, for /configz.
func (m *Manager) Configz() Config {
	cfg := m.cfg
	cfg.Controllers = names(m.entries)
	return cfg
}

// DebuggingHandlers returns the handlers of /debug/controllers/<name>, by name.
func (m *Manager) DebuggingHandlers() map[string]http.Handler { return m.debugging }

// Run starts the controllers in order, each after a random delay. It returns nil when ctx and all controllers have
// ended and their Events are written. It may be called again.
func (m *Manager) Run(ctx context.Context) error {
	for component, r := range m.recorders {
		r.start(record.New(
			record.Config{Client: m.deps.Client, Component: component, Clock: m.deps.Clock, Metrics: m.events,
				Guard: m.deps.Guard}))
		defer r.close()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	if m.cfg.ClockSet != nil {
		jumps := m.cfg.ClockSet(ctx)
		m.deps.Guard.Go(&wg, "clock", func() { m.deps.Jumps.Run(ctx, jumps) })
	}
	for i, s := range m.running {
		if i > 0 {
			m.pause(ctx)
		}
		m.deps.Guard.Go(&wg, "controller", func() { _ = s.Run(ctx) }) // nil by contract
	}
	return nil
}

func (m *Manager) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-m.deps.Clock.After(rand.N(startJitter)):
	}
}

// lazyRecorder is an Eventer for controllers that are created before their recorder is started.
type lazyRecorder struct {
	mu sync.RWMutex // guards r
	r  *record.Recorder
}

var _ record.Eventer = (*lazyRecorder)(nil)

func (l *lazyRecorder) start(r *record.Recorder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.r = r
}

func (l *lazyRecorder) close() { l.r.Close() }

// Eventf implements record.Eventer; before Run it drops the event.
func (l *lazyRecorder) Eventf(obj client.Object, eventtype, reason, format string, args ...any) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.r != nil {
		l.r.Eventf(obj, eventtype, reason, format, args...)
	}
}
