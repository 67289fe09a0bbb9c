package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/backoff"
)

// A part that panicked is restarted after a second, doubling up to five minutes. It is healthy again when it has run
// for twice the maximum pause without a panic.
const (
	First  = time.Second
	Last   = 5 * time.Minute
	healed = 2 * Last
)

// Guard recovers panics of goroutines that no caller waits for, logs and counts them, and knows which parts are
// unhealthy. A nil Guard only recovers.
type Guard struct {
	clock  clock.WithTicker
	log    *zap.Logger
	panics *prometheus.CounterVec // nil: not counted

	mu        sync.Mutex       // guards unhealthy
	unhealthy map[string]fault // by part
}

// fault is the last panic of a part.
type fault struct {
	at  time.Time
	why string
}

// New returns a Guard. All Guards with the same metrics share one counter; with nil metrics the counter is not
// registered.
func New(log *zap.Logger, clk clock.WithTicker, metrics prometheus.Registerer) (*Guard, error) {
	panics, err := Panics(metrics)
	return &Guard{clock: clk, log: log, unhealthy: map[string]fault{}, panics: panics}, err
}

// Panics returns the counter of recovered panics by part, which all callers with the same metrics share. With
// nil metrics it is not registered.
func Panics(metrics prometheus.Registerer) (*prometheus.CounterVec, error) {
	panics := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "monopod_panics_total", Help: "Number of recovered panics, by the part of the process in which they happened.",
	}, []string{"part"})
	if metrics == nil {
		return panics, nil
	}
	err := metrics.Register(panics)
	if known := (prometheus.AlreadyRegisteredError{}); errors.As(err, &known) {
		return known.ExistingCollector.(*prometheus.CounterVec), nil
	}
	return panics, err
}

// Logging returns a Guard without metrics.
func Logging(log *zap.Logger) *Guard {
	return &Guard{clock: clock.RealClock{}, log: log, unhealthy: map[string]fault{}}
}

// Caught logs and counts a panic that the caller recovered; name within the part is then unhealthy.
func (g *Guard) Caught(part, name string, p *Panic) {
	if g == nil {
		return
	}
	g.log.Error("panic recovered", zap.String("part", part), zap.String("name", name), zap.Any("panic", p.Value),
		zap.ByteString("panicStack", p.Stack))
	if g.panics != nil {
		g.panics.WithLabelValues(part).Inc()
	}
	if name != "" {
		part += " " + name
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unhealthy[part] = fault{at: g.clock.Now(), why: p.Error()}
}

// Healthy marks a name within a part as healthy, because it has run again or no longer exists.
func (g *Guard) Healthy(part, name string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.unhealthy, part+" "+name)
}

// Check returns an error that names the parts that panicked recently.
func (g *Guard) Check() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for part, f := range g.unhealthy {
		if g.clock.Since(f.at) > healed {
			delete(g.unhealthy, part)
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %s", part, f.why))
	}
	return errors.Join(errs...)
}

// Call calls f; a panic is also returned as an error.
func (g *Guard) Call(part string, f func() error) error {
	err := Call(f)
	if p := (*Panic)(nil); errors.As(err, &p) {
		g.Caught(part, "", p)
	}
	return err
}

// Run calls f. It returns false if f panicked.
func (g *Guard) Run(part string, f func()) bool {
	return g.Call(part, func() error { f(); return nil }) == nil
}

// Go calls f on a goroutine that wg counts.
func (g *Guard) Go(wg *sync.WaitGroup, part string, f func()) {
	wg.Go(func() { g.Run(part, f) })
}

// Spawn calls f on a goroutine that no WaitGroup counts.
func (g *Guard) Spawn(part string, f func()) {
	var wg sync.WaitGroup
	g.Go(&wg, part, f)
}

// Handler returns a handler that calls h. A panic of h ends its response: the client's connection is closed, or its
// stream.
func (g *Guard) Handler(part string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := Call(func() error { h.ServeHTTP(w, r); return nil })
		p := (*Panic)(nil)
		if !errors.As(err, &p) {
			return
		}
		if abort, ok := p.Value.(error); !ok || !errors.Is(abort, http.ErrAbortHandler) {
			g.Caught(part, "", p)
		}
		panic(http.ErrAbortHandler)
	})
}

// Keep calls f, and calls it again after a growing pause whenever it panics. It returns when f returns, or ctx ends.
func (g *Guard) Keep(ctx context.Context, clk clock.Clock, part string, f func()) {
	for retry := (backoff.Retry{First: First, Most: Last}); !g.Run(part, f) && retry.Wait(ctx, clk); {
	}
}
