package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver/process/backoff"
)

// What panicked is tried again after a second, doubled up to five minutes. It is well
// again once it has run for longer than that without another panic.
const (
	First  = time.Second
	Last   = 5 * time.Minute
	healed = 2 * Last
)

// Guard recovers the panics of goroutines that nobody waits for, logs and counts
// them, and knows which parts are not well. A nil Guard only recovers.
type Guard struct {
	clock  clock.WithTicker
	log    *zap.Logger
	panics *prometheus.CounterVec // nil: not counted

	mu  sync.Mutex       // guards ill
	ill map[string]fault // by part
}

// fault is the last panic of a part.
type fault struct {
	at  time.Time
	why string
}

// New makes a guard. All guards with the same metrics count together; nil keeps the
// count to itself.
func New(log *zap.Logger, clk clock.WithTicker, metrics prometheus.Registerer) (*Guard, error) {
	g := &Guard{clock: clk, log: log, ill: map[string]fault{}, panics: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "monopod_panics_total", Help: "Panics that were recovered, by the part of the process that they happened in.",
	}, []string{"part"})}
	if metrics == nil {
		return g, nil
	}
	err := metrics.Register(g.panics)
	if known := (prometheus.AlreadyRegisteredError{}); errors.As(err, &known) {
		g.panics, err = known.ExistingCollector.(*prometheus.CounterVec), nil
	}
	return g, err
}

// Logging is a Guard that counts nothing, for those who have only a log.
func Logging(log *zap.Logger) *Guard {
	return &Guard{clock: clock.RealClock{}, log: log, ill: map[string]fault{}}
}

// Caught logs and counts a panic that somebody else recovered, and whoever name names
// within the part is not well.
func (g *Guard) Caught(part, name string, p *Panic) {
	if g == nil {
		return
	}
	g.log.Error("panic recovered", zap.String("part", part), zap.String("name", name), zap.Any("panic", p.Value), zap.ByteString("panicStack", p.Stack))
	if g.panics != nil {
		g.panics.WithLabelValues(part).Inc()
	}
	if name != "" {
		part += " " + name
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ill[part] = fault{at: g.clock.Now(), why: p.Error()}
}

// Well forgets the panics of a name within a part: it has run since, or is no more.
func (g *Guard) Well(part, name string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.ill, part+" "+name)
}

// Check says which parts have panicked a short time ago.
func (g *Guard) Check() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for part, f := range g.ill {
		if g.clock.Since(f.at) > healed {
			delete(g.ill, part)
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %s", part, f.why))
	}
	return errors.Join(errs...)
}

// Call calls f; a panic in it is an error, too.
func (g *Guard) Call(part string, f func() error) error {
	err := Call(f)
	if p := (*Panic)(nil); errors.As(err, &p) {
		g.Caught(part, "", p)
	}
	return err
}

// Run calls f; false: it panicked.
func (g *Guard) Run(part string, f func()) bool {
	return g.Call(part, func() error { f(); return nil }) == nil
}

// Go calls f on a goroutine that wg counts.
func (g *Guard) Go(wg *sync.WaitGroup, part string, f func()) {
	wg.Go(func() { g.Run(part, f) })
}

// Keep calls f, and calls it again, after a pause that grows, whenever it panics. It
// returns when f does, or ctx ends.
func (g *Guard) Keep(ctx context.Context, clk clock.Clock, part string, f func()) {
	for retry := (backoff.Retry{First: First, Most: Last}); !g.Run(part, f) && retry.Wait(ctx, clk); {
	}
}
