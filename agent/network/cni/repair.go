package cni

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/agent/network/cni/ipam"
	"monopod/agent/network/cni/rules"
	"monopod/agent/network/nft"
	"monopod/apiserver/kit/backoff"
)

// settle is the time between a removal of rules by another program and the check of the tables: a flush is many
// removals, and programs that flush often load other rules after it.
const settle = 200 * time.Millisecond

// maxRetry is the maximum pause before a failed repair is retried.
const maxRetry = 30 * time.Second

// Keep restores the network's tables whenever another program has removed rules from them, as `nft flush ruleset` does:
// address translation, rejection, isolation, and the host ports of running pods. It runs until ctx ends, in the network
// namespace in which Prepare was called.
func Keep(ctx context.Context, n Network, log *zap.Logger) {
	k := repairer{Network: n, log: log}
	removals := nft.Watch(ctx)
	retry := backoff.Retry{First: settle, Most: maxRetry}
	for {
		if err := k.check(ctx); err != nil && ctx.Err() == nil {
			log.Warn("failed to restore the nftables rules of the pod network", zap.Error(err))
			retry.Wait(ctx, clock.RealClock{})
			continue
		}
		retry.Reset()
		if _, open := <-removals; !open {
			return
		}
		backoff.Sleep(ctx, clock.RealClock{}, settle)
	}
}

// repairer repairs the tables of a network.
type repairer struct {
	Network
	log   *zap.Logger
	rules int // number of rules in the complete tables; 0: not known
}

// check restores the tables if their number of rules has changed.
func (k *repairer) check(ctx context.Context) error {
	have, err := k.Network.rules().Count()
	if nft.Missing(err) {
		return nil
	}
	if err != nil || have > 0 && k.rules == 0 {
		k.rules = have
		return err
	}
	if have == k.rules && have > 0 {
		return nil
	}
	err = k.pool().Lock(func() error {
		// After ctx has ended, another goroutine removes the network, under the same lock.
		if ctx.Err() != nil {
			return nil
		}
		return errors.Join(k.setUp(k.log), k.restorePorts())
	})
	if err != nil {
		return err
	}
	k.log.Info("restored the nftables rules of the pod network, which another program had removed")
	have, err = k.Network.rules().Count()
	k.rules = max(k.rules, have) // another program may have removed rules again before they were counted
	return err
}

// restorePorts writes the host ports of running pods, under the lock of all addresses.
func (n Network) restorePorts() error {
	boot, err := ipam.BootID()
	if err != nil {
		return err
	}
	holders, err := n.pool().Holders()
	if err != nil {
		return err
	}
	type pod struct{ container, ifname string }
	ports, addrs := map[pod][]rules.Port{}, map[pod][]netip.Addr{}
	for ip, h := range holders {
		if len(h.HostPorts) > 0 && !h.Leaked(boot) {
			key := pod{h.Container, h.IfName}
			ports[key], addrs[key] = h.HostPorts, append(addrs[key], ip)
		}
	}
	var errs []error
	for key := range ports {
		errs = append(errs, n.rules().AddPorts(addrs[key], ports[key]))
	}
	return errors.Join(errs...)
}
