// Package election elects one of several processes on a shared store to run the controllers.
//
// The processes elect a leader by a Lease with upstream's name and protocol, so that a kube-controller-manager on the
// same state takes part, too. The holder renews the lease. Another process acquires it when the lease has not changed
// for its duration, measured by that process' own clock. The holder stops before that.
package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

// Upstream's values (component-base/config: LeaderElectionConfiguration; client-go/tools/leaderelection).
const (
	leaseDuration = 15 * time.Second // a lease that has not changed for that long has expired
	renewDeadline = 10 * time.Second // a leader that has not renewed the lease for that long stops
	retryPeriod   = 2 * time.Second  // between two attempts
	jitter        = 1.2              // waiting processes multiply retryPeriod by 1 to 1+jitter, at random
)

// The Lease.
const (
	Namespace = metav1.NamespaceSystem
	Name      = "kube-controller-manager"
)

// Config of an Elector. Client and Identity are required.
type Config struct {
	Client   client.Client
	Identity string      // unique for each process
	Clock    clock.Clock // nil: the real clock
	Log      *zap.Logger // nil: no logs
}

// Elector is a participant of one election.
type Elector struct {
	cfg     Config
	leading atomic.Bool

	// Only Run uses the fields below: the last observed change of the lease, the time of the observation, and the start of
	// this process' last successful attempt to acquire or renew it.
	observedVersion string // its resourceVersion
	seenAt, heldAt  time.Time
}

// New returns an Elector.
func New(cfg Config) (*Elector, error) {
	if cfg.Client == nil || cfg.Identity == "" {
		return nil, errors.New("election: Client and Identity are required")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	cfg.Log = cfg.Log.With(zap.String("identity", cfg.Identity))
	return &Elector{cfg: cfg}, nil
}

// Leading reports whether this process runs the controllers.
func (e *Elector) Leading() bool { return e.leading.Load() }

// Run calls lead whenever this process acquires the lease, and cancels lead's context when it loses the lease. Run
// returns lead's error, or nil when ctx and lead have ended and the lease is released.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	for e.acquire(ctx) {
		if err := e.term(ctx, lead); err != nil {
			return err
		}
	}
	return nil
}

// acquire waits until this process holds the lease; it returns false if ctx ends before.
func (e *Elector) acquire(ctx context.Context) bool {
	for ctx.Err() == nil {
		holder, err := e.tryAcquireOrRenew(ctx, renewDeadline)
		switch {
		case err == nil && holder == e.cfg.Identity:
			return true
		case err == nil:
			e.cfg.Log.Debug("another process runs the controllers", zap.String("holder", holder))
		case ctx.Err() == nil:
			e.cfg.Log.Warn("failed to acquire the controllers' lease", zap.Error(err))
		}
		pause := retryPeriod + rand.N(time.Duration(jitter*float64(retryPeriod)))
		select {
		case <-ctx.Done():
		case <-e.cfg.Clock.After(pause):
		}
	}
	return false
}

// term leads until the lease is lost, lead fails or ctx ends.
func (e *Elector) term(ctx context.Context, lead func(ctx context.Context) error) error {
	leadCtx, stop := context.WithCancel(ctx)
	defer stop()
	e.leading.Store(true)
	e.cfg.Log.Info("acquired the controllers' lease, running the controllers")
	ended := make(chan struct{})
	var leading guard.Group
	leading.Do(func() error {
		defer close(ended)
		return lead(leadCtx)
	})
	held := e.keepRenewing(leadCtx, ended)
	stop()
	err := leading.Wait()
	e.leading.Store(false)
	if held {
		e.release(context.WithoutCancel(ctx))
	}
	return err
}

// keepRenewing renews the lease until ctx or lead has ended. It returns false if the lease was lost.
func (e *Elector) keepRenewing(ctx context.Context, ended <-chan struct{}) bool {
	for {
		left := e.timeLeft()
		if left <= 0 {
			e.cfg.Log.Error("failed to renew the controllers' lease in time, stopping the controllers")
			return false
		}
		select {
		case <-ctx.Done():
			return true
		case <-ended:
			return true
		case <-e.cfg.Clock.After(min(retryPeriod, left)):
		}
		holder, err := e.tryAcquireOrRenew(ctx, e.timeLeft())
		if err == nil && holder != e.cfg.Identity {
			e.cfg.Log.Error("another process has acquired the controllers' lease, stopping the controllers",
				zap.String("holder", holder))
			return false
		}
		if err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("failed to renew the controllers' lease", zap.Error(err))
		}
	}
}

// timeLeft returns how long this process may lead without renewing the lease.
func (e *Elector) timeLeft() time.Duration { return renewDeadline - e.cfg.Clock.Since(e.heldAt) }

// tryAcquireOrRenew acquires or renews the lease if that is allowed, and returns its holder.
func (e *Elector) tryAcquireOrRenew(ctx context.Context, within time.Duration) (holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	began := e.cfg.Clock.Now()
	lease, err := client.Get[*coordinationv1.Lease](ctx, e.cfg.Client, Namespace, Name)
	switch {
	case apierrors.IsNotFound(err):
		_, err = e.cfg.Client.Create(ctx, e.next(nil))
	case err != nil:
		return "", err
	case !e.mayAcquire(lease):
		return *lease.Spec.HolderIdentity, nil
	default:
		err = e.replace(ctx, lease, e.next(lease))
	}
	if err != nil {
		return "", err
	}
	e.heldAt = began
	return e.cfg.Identity, nil
}

// mayAcquire reports whether this process may write itself as the holder: it holds the lease, nobody does, or it has
// expired.
func (e *Elector) mayAcquire(lease *coordinationv1.Lease) bool {
	if lease.ResourceVersion != e.observedVersion {
		e.observedVersion, e.seenAt = lease.ResourceVersion, e.cfg.Clock.Now()
	}
	spec := &lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || *spec.HolderIdentity == e.cfg.Identity {
		return true
	}
	promised := leaseDuration
	if spec.LeaseDurationSeconds != nil {
		promised = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	}
	return e.cfg.Clock.Since(e.seenAt) >= promised
}

// next returns the lease with this process as holder; cur is nil if there is none yet.
func (e *Elector) next(cur *coordinationv1.Lease) *coordinationv1.Lease {
	now := metav1.NewMicroTime(e.cfg.Clock.Now())
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name}}
	if cur != nil {
		next = cur.DeepCopy()
	}
	spec := &next.Spec
	switch {
	case cur == nil:
		spec.LeaseTransitions, spec.AcquireTime = new(int32), &now
	case cur.Spec.HolderIdentity == nil || *cur.Spec.HolderIdentity != e.cfg.Identity:
		var transitions int32
		if spec.LeaseTransitions != nil {
			transitions = *spec.LeaseTransitions
		}
		spec.LeaseTransitions, spec.AcquireTime = new(transitions+1), &now
	}
	spec.HolderIdentity, spec.RenewTime = new(e.cfg.Identity), &now
	spec.LeaseDurationSeconds = new(int32(leaseDuration / time.Second))
	return next
}

// replace stores next if the lease has not changed since cur was read.
func (e *Elector) replace(ctx context.Context, cur, next *coordinationv1.Lease) error {
	_, err := e.cfg.Client.Update(ctx, client.RefOf(cur), func(now client.Object) (client.Object, error) {
		if now.GetResourceVersion() != cur.ResourceVersion {
			return nil, errTaken
		}
		return next.DeepCopy(), nil
	})
	return err
}

// errTaken means that another process wrote the lease first.
var errTaken = errors.New("the lease changed meanwhile")

// release clears the holder, so that the next process does not have to wait until the lease expires.
func (e *Elector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, retryPeriod)
	defer cancel()
	lease, err := client.Get[*coordinationv1.Lease](ctx, e.cfg.Client, Namespace, Name)
	if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == e.cfg.Identity {
		next := lease.DeepCopy()
		next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds = new(""), new(int32(1))
		err = e.replace(ctx, lease, next)
	}
	if err != nil {
		e.cfg.Log.Warn("failed to release the controllers' lease", zap.Error(err))
	}
}
