// Package logind delays the shutdown of the machine until the pods of its node have
// ended: it holds an inhibitor of systemd-logind, of mode delay, and releases it when
// they have.
//
// Logind waits for at most InhibitDelayMaxSec (5 s by default). If that is less than
// the pods' grace periods, they get less; systemd's configuration is not changed.
package logind

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"monopod/agent/node/shutdown"
	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/guard"
)

// Node is the node whose pods are stopped.
type Node interface {
	// StopPods stops the pods within the periods, and rejects new ones. It returns when they have ended, or ctx
	// ends.
	StopPods(ctx context.Context, p shutdown.Periods)
	// StayUp accepts pods again after a cancelled shutdown.
	StayUp()
}

// Reasons of events: upstream's, and ours where upstream only logs.
const (
	reasonShutdown = "Shutdown"
	reasonNoWait   = "ShutdownNotDelayed"
	reasonTooShort = "ShutdownDelayTooShort"
)

// Config of a Delay. Node is required.
type Config struct {
	Node    Node
	Periods shutdown.Periods
	// Event records an event of the node; nil: none is recorded.
	Event func(eventType, reason, message string)
	// Bus is the address of the system bus; empty: DBUS_SYSTEM_BUS_ADDRESS or the default.
	Bus   string
	Clock clock.Clock  // nil: the real one
	Guard *guard.Guard // nil: panics are only recovered
	Log   *zap.Logger  // nil: none
}

// Delay delays the shutdown of the machine.
type Delay struct {
	cfg Config

	// Only the goroutine of Run uses the fields below.
	lock  *os.File      // while it is held, logind delays a shutdown; nil: not held
	down  *descent      // nil: no shutdown
	limit time.Duration // logind's maximum delay, as last read
	mute  bool          // an event has reported that shutdowns are not delayed
}

// descent is a shutdown of the machine.
type descent struct {
	cancel context.CancelFunc
	over   chan struct{}
}

// New returns a Delay; Run starts it.
func New(cfg Config) *Delay {
	if cfg.Event == nil {
		cfg.Event = func(string, string, string) {}
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Delay{cfg: cfg}
}

// Pauses between attempts to reach the bus.
const (
	redialFirst = time.Second // upstream's
	redialMost  = time.Minute
)

// Run holds the inhibitor until ctx ends, and takes a new one when the bus or logind restarts.
func (d *Delay) Run(ctx context.Context) {
	defer d.letGo()
	for retry := (backoff.Retry{First: redialFirst, Most: redialMost}); ctx.Err() == nil; retry.Wait(ctx, d.cfg.Clock) {
		worked, err := d.session(ctx)
		if worked { // so that a restart of the bus alone causes no event
			retry.Reset()
		} else if ctx.Err() == nil {
			d.complain(err)
		}
	}
}

// letGo ends what Run started.
func (d *Delay) letGo() {
	if d.down != nil {
		d.down.cancel()
		<-d.down.over
	}
	d.release(nil)
}

// release releases the inhibitor; next, if any, replaces it.
func (d *Delay) release(next *os.File) {
	if d.lock != nil {
		_ = d.lock.Close()
	}
	d.lock = next
}

// complain records, once, that shutdowns are not delayed.
func (d *Delay) complain(err error) {
	if d.mute {
		return
	}
	d.mute = true
	d.cfg.Log.Warn("cannot delay shutdowns of the machine through logind, retrying", zap.Error(err))
	d.cfg.Event(corev1.EventTypeWarning, reasonNoWait,
		fmt.Sprintf("Pods are not stopped in order when the machine shuts down: %v", err))
}

var errHungUp = errors.New("the connection to the system bus was closed")

// session lasts as long as a connection; worked reports whether it was set up successfully.
func (d *Delay) session(ctx context.Context) (worked bool, err error) {
	conn, err := connect(ctx, d.cfg.Bus)
	if err != nil {
		return false, fmt.Errorf("connect to the system's bus: %w", err)
	}
	defer conn.Close()
	bus := manager{conn}
	news, err := bus.listen(ctx)
	if err != nil {
		return false, err
	}
	if err := d.see(ctx, bus, bus.goesDown); err != nil { // the events of an earlier session
		return false, err
	}
	return true, d.follow(ctx, bus, news)
}

// follow handles signals until the channel is closed.
func (d *Delay) follow(ctx context.Context, bus manager, news <-chan *dbus.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n, ok := <-news:
			if !ok {
				return errHungUp
			}
			if ask := bus.ask(n); ask != nil {
				if err := d.see(ctx, bus, ask); err != nil {
					return err
				}
			}
		}
	}
}

// see handles the start or cancellation of a shutdown.
func (d *Delay) see(ctx context.Context, bus manager, ask func(context.Context) (bool, error)) error {
	down, err := ask(ctx)
	switch {
	case err != nil:
		return err
	case down && d.down == nil:
		d.goDown(ctx, bus)
	case !down:
		d.comeBack()
		return d.take(ctx, bus)
	}
	return nil
}

// take takes a new inhibitor; the old one is held until then.
func (d *Delay) take(ctx context.Context, bus manager) error {
	lock, err := bus.inhibit(ctx)
	if err != nil {
		return err
	}
	d.release(lock)
	limit, err := bus.limit(ctx)
	if err != nil {
		return err
	}
	d.mute = false
	if limit != d.limit {
		d.limit = limit
		d.cfg.Log.Info("shutdowns of the machine are delayed until the pods have ended", zap.Duration("most", limit))
		d.warn(limit)
	}
	return nil
}

// warn reports how to configure a logind whose delay is too short.
func (d *Delay) warn(limit time.Duration) {
	want := d.cfg.Periods.Bound()
	if limit >= want {
		return
	}
	d.cfg.Log.Warn("logind's shutdown delay is shorter than the grace period of the pods", zap.Duration("waits", limit),
		zap.Duration("wanted", want))
	d.cfg.Event(corev1.EventTypeWarning, reasonTooShort,
		fmt.Sprintf("systemd-logind waits %v for pods to end, they may take %v: they get less. "+
			"Put InhibitDelayMaxSec=%.0f below [Login] into /etc/systemd/logind.conf.d/99-monopod.conf and run: systemctl kill -s HUP systemd-logind",
			limit, want, math.Ceil(d.cfg.Periods.Needs().Seconds())))
}

// goDown stops the pods, then releases the inhibitor.
func (d *Delay) goDown(ctx context.Context, bus manager) {
	d.cfg.Event(corev1.EventTypeNormal, reasonShutdown, "Shutdown manager detected shutdown event")
	periods, lock := d.cfg.Periods, d.lock
	d.lock = nil
	if limit, err := bus.limit(ctx); err == nil {
		periods = periods.Within(limit)
	} else if d.limit > 0 {
		periods = periods.Within(d.limit)
	}
	// The connection may end with the system bus; stopping the pods continues.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.down = &descent{cancel: cancel, over: make(chan struct{})}
	over := d.down.over
	d.cfg.Guard.Spawn("shutdown", func() {
		defer close(over)
		if lock != nil {
			defer lock.Close()
		}
		d.cfg.Node.StopPods(ctx, periods)
	})
}

// comeBack reverts goDown as far as possible.
func (d *Delay) comeBack() {
	if d.down == nil {
		return
	}
	d.down.cancel()
	<-d.down.over
	d.down = nil
	d.cfg.Event(corev1.EventTypeNormal, reasonShutdown, "Shutdown manager detected shutdown cancellation")
	d.cfg.Node.StayUp()
}
