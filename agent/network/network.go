// Package network serves Services to the pods of a node and to the node itself.
//
//   - view: Services and EndpointSlices, as the API has them
//   - service: the addresses of Services, which the kernel translates to those of endpoints
//   - dns: the names of Services
//   - ingress: Ingresses; it runs independently of the Network, whatever the pods' network is
//   - cni: the pods' addresses and links
//   - policy: NetworkPolicies, which the kernel applies between pods and to the world outside
//   - nft: brings tables of nftables to what the others want
package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/network/dns"
	"monopod/agent/network/endpoints"
	"monopod/agent/network/nft"
	"monopod/agent/network/policy"
	"monopod/agent/network/service"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
)

// Name of the controller.
const Name = "network"

// Config of a Network. Node, Bridge and Table are required.
type Config struct {
	Node     string            // name of the node
	Bridge   string            // link of the pods
	Bridges  string            // prefix of the names of such links of all instances on the machine
	Table    string            // name of the nftables tables of Services
	Policy   string            // name of the nftables tables of NetworkPolicies
	Gateways []netip.Addr      // of the pods: the addresses of Bridge
	Families []corev1.IPFamily // of the pods
	Cluster  []netip.Prefix    // addresses of pods and Services
	Pool     []netip.Prefix    // addresses of load balancers, which this node has while Services use them

	// Connected are the pods that the network plugin connected before. Their statuses may not be written yet.
	Connected []Connected

	// DNS are the addresses of the DNS server's Service, one of each IP family of Services; none: no DNS server.
	DNS        []netip.Addr
	Domain     string // of the cluster
	Stubs      dns.Stubs
	ResolvConf string // names the resolvers of the node; empty: /etc/resolv.conf
}

// Network follows the API and updates the kernel and the DNS server.
type Network struct {
	deps   follow.Deps
	cfg    Config
	failed atomic.Pointer[error] // of the last attempt to write Services to the kernel; nil: none
	lax    atomic.Pointer[error] // of the last attempt to write NetworkPolicies
	feed   *feed
	loop   atomic.Pointer[follow.Loop[follow.Key]] // nil before the first Run
}

var _ follow.Controller = (*Network)(nil)

// New returns a Network; Run starts it.
func New(deps follow.Deps, cfg Config) *Network {
	if cfg.ResolvConf == "" {
		cfg.ResolvConf = "/etc/resolv.conf"
	}
	return &Network{deps: deps, cfg: cfg, feed: newFeed(cfg.Connected)}
}

// Name implements follow.Controller.
func (n *Network) Name() string { return Name }

// Check returns why the kernel does not forward Services, and why it does not apply NetworkPolicies.
func (n *Network) Check() error {
	lax, failed := n.lax.Load(), n.failed.Load()
	switch {
	case lax != nil && failed != nil:
		return fmt.Errorf(
			"the addresses of Services are not forwarded, and NetworkPolicies are not applied: %w; the kernel (5.6 or later) needs nftables with nat, fib, numgen, reject and connection tracking", *failed)
	case lax != nil:
		return fmt.Errorf(
			"NetworkPolicies are not applied: %w; the kernel (5.6 or later) needs nftables with connection tracking", *lax)
	case failed != nil:
		return fmt.Errorf(
			"the addresses of Services are not forwarded: %w; the kernel needs nftables with nat, fib, numgen and reject",
			*failed)
	}
	return nil
}

// dnsPort is the port of the DNS server, unless another program of the node uses it.
const dnsPort = 53

// Run implements follow.Controller. Its tables stay in the kernel when it ends, so that pods' connections continue.
func (n *Network) Run(ctx context.Context) error {
	group, ctx := guard.With(ctx)
	health := service.NewHealthChecks(ctx, n.deps.Guard, n.deps.Log)
	defer health.Wait()
	r := n.begin(health)
	defer r.proxy.Close()
	defer r.rules.Close()
	// Also without Services, because an earlier process may have left some in the kernel.
	start := []follow.Key{{}}
	if len(n.cfg.DNS) > 0 {
		start = append(start, dns.Key)
		r.zone = dns.NewZone(n.cfg.Domain, r.seen, n.cfg.Cluster)
		listens := make(chan struct{})
		group.Do(func() error { return r.serveDNS(ctx, listens) })
		select {
		case <-listens:
		case <-ctx.Done():
			return group.Wait()
		}
	}
	loop := follow.New(n.deps, follow.Config[follow.Key]{
		Name: Name, Sources: append(r.seen.Sources(), n.feed.sources(n.cfg.Node)...), Start: start, Reconcile: r.reconcile,
	})
	n.loop.Store(loop)
	group.Do(func() error { return loop.Run(ctx) })
	group.Do(func() error {
		for range nft.Watch(ctx) {
			r.disturbed.Store(true)
			loop.AddAfter(settle, follow.Key{})
		}
		return nil
	})
	return group.Wait()
}

// settle is the time between a removal of rules by another program and the check of our tables: a flush is many
// removals, and programs that flush often load other rules after it.
const settle = 200 * time.Millisecond

// running is a Network while it runs.
type running struct {
	*Network
	seen  *endpoints.View
	proxy *service.Proxy
	rules *enforcing
	zone  *dns.Zone        // nil: no DNS server
	dns   []netip.AddrPort // where it listens

	disturbed atomic.Bool // another program removed rules from the kernel
}

func (n *Network) begin(health *service.HealthChecks) *running {
	return &running{
		Network: n, seen: endpoints.New(n.cfg.Node),
		proxy: service.New(service.Config{
			Table: n.cfg.Table, Node: service.Node{Name: n.cfg.Node, Pool: n.cfg.Pool}, Bridge: n.cfg.Bridge, Bridges: n.cfg.Bridges, Families: n.cfg.Families, Health: health, Log: n.deps.Log,
		}),
		rules: newEnforcing(n.feed, policy.Config{Table: n.cfg.Policy, Families: n.cfg.Families, Log: n.deps.Log}),
	}
}

func (r *running) serveDNS(ctx context.Context, listens chan struct{}) error {
	served := func() []netip.Addr { return slices.Concat(r.cfg.DNS, r.cfg.Gateways) }
	forward := dns.NewForwarder(dns.Resolvers(r.cfg.ResolvConf, served, modified), r.cfg.Stubs, r.deps.Clock, r.deps.Guard)
	err := dns.NewServer(r.zone, forward, r.deps.Guard, r.deps.Log).Serve(ctx, r.cfg.Gateways, dnsPort, func(at []netip.AddrPort) {
		r.dns = at
		close(listens)
	})
	if err != nil {
		return fmt.Errorf("serve DNS: %w", err)
	}
	return nil
}

func modified(file string) (time.Time, error) {
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// reconcile writes all changes to the kernel in one transaction for each table, so that later keys have nothing to
// write.
func (r *running) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	var gone error
	if r.disturbed.Swap(false) {
		gone = errors.Join(r.rules.Verify(), r.proxy.Verify())
	}
	lax := r.rules.reconcile()
	if lax == nil {
		r.lax.Store(nil)
	} else {
		r.lax.Store(&lax)
	}
	return 0, errors.Join(gone, lax, r.reconcileServices(ctx, key))
}

func (r *running) reconcileServices(ctx context.Context, key follow.Key) error {
	changed := r.seen.Take()
	for r.proxy.SetZone(r.seen.Zone()); len(changed) > 0; {
		for key := range changed {
			delete(changed, key)
			if r.zone != nil {
				r.zone.Changed(key)
			}
			svc, eps := r.seen.Get(key)
			for _, other := range r.proxy.Set(key, svc, eps) {
				changed[other] = struct{}{}
			}
		}
	}
	if err := r.proxy.Sync(); err != nil {
		r.failed.Store(&err)
		return err
	}
	r.failed.Store(nil)
	if r.zone == nil || key != dns.Key {
		return nil
	}
	return dns.Publish(ctx, r.deps.Client, r.cfg.DNS, r.dns, r.cfg.Node)
}
