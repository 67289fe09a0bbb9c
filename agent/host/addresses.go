package host

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/kernel"
)

// settleTime is the delay after a change until the addresses are read: a new link gets them one after the other.
const settleTime = 100 * time.Millisecond

// Addresses are the addresses that IPs returns. Run updates them.
type Addresses struct {
	families []corev1.IPFamily
	now      atomic.Pointer[[]netip.Addr]
}

// Fixed returns Addresses that never change.
func Fixed(ip ...netip.Addr) *Addresses {
	a := &Addresses{}
	a.now.Store(&ip)
	return a
}

// ReadAddresses returns the addresses of the families.
func ReadAddresses(families []corev1.IPFamily) *Addresses {
	a := Fixed(IPs(families)...)
	a.families = families
	if len(families) == 0 {
		a.families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	return a
}

// Strings returns the current addresses, at least one.
func (a *Addresses) Strings() []string {
	var out []string
	for _, ip := range *a.now.Load() {
		out = append(out, ip.String())
	}
	return out
}

// Run updates the addresses, in the network namespace of the caller, until ctx ends, and calls changed after each
// change. It does not poll: the kernel reports changes.
func (a *Addresses) Run(ctx context.Context, changed func()) {
	if a.families == nil {
		<-ctx.Done()
		return
	}
	changes := kernel.WatchNetwork(ctx)
	for open := true; open; _, open = <-changes {
		backoff.Sleep(ctx, clock.RealClock{}, settleTime)
		if next := nextIPs(*a.now.Load(), a.families); !slices.Equal(next, *a.now.Load()) && ctx.Err() == nil {
			a.now.Store(&next)
			changed()
		}
	}
}
