// Package logind delays the shutdown of the machine until the pods of its node have ended: it holds an inhibitor of
// systemd-logind, of mode delay, and releases it when they have.
//
// Logind waits for at most InhibitDelayMaxSec (5 s by default). If that is less than the pods' grace periods, the
// periods are shortened. The package does not change systemd's configuration.
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
	// CancelShutdown accepts pods again after a cancelled shutdown.
	CancelShutdown()
}

// Reasons of events. Upstream writes only the first one, and logs the others.
const (
	reasonShutdown = "Shutdown"
	reasonNoWait   = "ShutdownNotDelayed"
	reasonTooShort = "ShutdownDelayTooShort"
)

// Config configures a Delay. Node is required.
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
	inhibitor *os.File      // while it is held, logind delays a shutdown; nil: not held
	down      *shutdownRun  // nil: no shutdown
	limit     time.Duration // logind's maximum delay, as last read
	reported  bool          // an event has reported that shutdowns are not delayed
}

// shutdownRun is a shutdown of the machine.
type shutdownRun struct {
	cancel context.CancelFunc
	over   chan struct{}
}

// New returns a Delay that does nothing until Run is called.
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
	redialMax   = time.Minute
)

// Run holds the inhibitor until ctx ends, and takes a new one when the bus or logind restarts.
func (d *Delay) Run(ctx context.Context) {
	defer d.close()
	for retry := (backoff.Retry{First: redialFirst, Most: redialMax}); ctx.Err() == nil; retry.Wait(ctx, d.cfg.Clock) {
		worked, err := d.session(ctx)
		if worked { // no event after a mere restart of the bus
			retry.Reset()
		} else if ctx.Err() == nil && !d.reported {
			d.reported = true
			d.cfg.Log.Warn("cannot delay shutdowns of the machine through logind, retrying", zap.Error(err))
			d.cfg.Event(corev1.EventTypeWarning, reasonNoWait,
				fmt.Sprintf("Pods are not stopped in order when the machine shuts down: %v", err))
		}
	}
}

// close cancels a running shutdown and releases the inhibitor.
func (d *Delay) close() {
	if d.down != nil {
		d.down.cancel()
		<-d.down.over
	}
	d.release(nil)
}

// release releases the inhibitor; next, if any, replaces it.
func (d *Delay) release(next *os.File) {
	if d.inhibitor != nil {
		_ = d.inhibitor.Close()
	}
	d.inhibitor = next
}

var errConnectionClosed = errors.New("the connection to the system bus was closed")

// session handles one connection to the bus until it ends. worked means that the connection was set up successfully.
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
	if err := d.handle(ctx, bus, bus.shuttingDown); err != nil { // signals between two sessions were missed
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
				return errConnectionClosed
			}
			if state := bus.shutdownState(n); state != nil {
				if err := d.handle(ctx, bus, state); err != nil {
					return err
				}
			}
		}
	}
}

// handle handles the start or cancellation of a shutdown.
func (d *Delay) handle(ctx context.Context, bus manager, ask func(context.Context) (bool, error)) error {
	down, err := ask(ctx)
	switch {
	case err != nil:
		return err
	case down && d.down == nil:
		d.shutDown(ctx, bus)
	case !down:
		d.cancelShutdown()
		return d.takeInhibitor(ctx, bus)
	}
	return nil
}

// takeInhibitor takes a new inhibitor; the old one is held until then. It reports how to configure a logind whose delay
// is too short.
func (d *Delay) takeInhibitor(ctx context.Context, bus manager) error {
	lock, err := bus.inhibit(ctx)
	if err != nil {
		return err
	}
	d.release(lock)
	limit, err := bus.maxDelay(ctx)
	if err != nil {
		return err
	}
	d.reported = false
	if limit == d.limit {
		return nil
	}
	d.limit = limit
	d.cfg.Log.Info("shutdowns of the machine are delayed until the pods have ended", zap.Duration("most", limit))
	want := d.cfg.Periods.Bound()
	if limit >= want {
		return nil
	}
	d.cfg.Log.Warn("logind's shutdown delay is shorter than the grace period of the pods", zap.Duration("waits", limit),
		zap.Duration("wanted", want))
	d.cfg.Event(corev1.EventTypeWarning, reasonTooShort,
		fmt.Sprintf("systemd-logind waits %v for pods to end, they may take %v: they get less. "+
			"Put InhibitDelayMaxSec=%.0f below [Login] into /etc/systemd/logind.conf.d/99-monopod.conf and run: "+
			"systemctl kill -s HUP systemd-logind",
			limit, want, math.Ceil(d.cfg.Periods.Needs().Seconds())))
	return nil
}

// shutDown stops the pods, then releases the inhibitor.
func (d *Delay) shutDown(ctx context.Context, bus manager) {
	d.cfg.Event(corev1.EventTypeNormal, reasonShutdown, "Shutdown manager detected shutdown event")
	periods, lock := d.cfg.Periods, d.inhibitor
	d.inhibitor = nil
	if limit, err := bus.maxDelay(ctx); err == nil {
		periods = periods.Within(limit)
	} else if d.limit > 0 {
		periods = periods.Within(d.limit)
	}
	// The connection may end with the system bus; stopping the pods continues.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.down = &shutdownRun{cancel: cancel, over: make(chan struct{})}
	over := d.down.over
	d.cfg.Guard.Spawn("shutdown", func() {
		defer close(over)
		if lock != nil {
			defer lock.Close()
		}
		d.cfg.Node.StopPods(ctx, periods)
	})
}

// cancelShutdown stops stopping the pods, and makes the node accept pods again.
func (d *Delay) cancelShutdown() {
	if d.down == nil {
		return
	}
	d.down.cancel()
	<-d.down.over
	d.down = nil
	d.cfg.Event(corev1.EventTypeNormal, reasonShutdown, "Shutdown manager detected shutdown cancellation")
	d.cfg.Node.CancelShutdown()
}
