// Package network serves Services to the pods of a node and to the node itself.
//
//   - endpoints: caches Services and EndpointSlices
//   - service: translates the addresses of Services to those of their endpoints, in the kernel
//   - dns: resolves the names of Services
//   - ingress: serves Ingresses; it runs independently of the Network, with any network of the pods
//   - cni: connects pods and allocates their addresses
//   - policy: applies NetworkPolicies, in the kernel
//   - nodes: makes the pods of other nodes reachable
//   - nft: writes nftables tables
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
	Pods     []netip.Prefix    // addresses of the node's pods; empty: not known
	Cluster  []netip.Prefix    // addresses of pods and Services
	Pool     []netip.Prefix    // addresses of load balancers, which this node has while Services use them

	// Connected are the pods that the network plugin has connected. Their statuses may not be written yet.
	Connected []Connected

	// DNS are the addresses of the DNS server's Service, one of each IP family of Services; none: no DNS server.
	DNS []netip.Addr
	// Joined: another process publishes the DNS server's Service. It leads to this node's server all the same.
	Joined     bool
	Domain     string // of the cluster
	Stubs      dns.Stubs
	ResolvConf string // names the resolvers of the node; empty: /etc/resolv.conf
}

// Network follows the API and updates the kernel and the DNS server.
type Network struct {
	deps        follow.Deps
	cfg         Config
	servicesErr atomic.Pointer[error] // the last attempt to write Services to the kernel failed; nil: it succeeded
	policiesErr atomic.Pointer[error] // the same for NetworkPolicies
	policies    *policySource
	loop        atomic.Pointer[follow.Loop[follow.Key]] // nil before the first Run
	otherNodes  atomic.Bool                             // there are other nodes
}

var _ follow.Controller = (*Network)(nil)

// New returns a Network; Run starts it.
func New(deps follow.Deps, cfg Config) *Network {
	if cfg.ResolvConf == "" {
		cfg.ResolvConf = "/etc/resolv.conf"
	}
	return &Network{deps: deps, cfg: cfg, policies: newPolicySource(cfg.Connected)}
}

// Name implements follow.Controller.
func (n *Network) Name() string { return Name }

// FollowOtherNodes makes pods of other nodes peers of NetworkPolicies, from now on.
func (n *Network) FollowOtherNodes() {
	n.otherNodes.Store(true)
	if loop := n.loop.Load(); loop != nil { // otherwise Run does it
		loop.FollowOptional()
		loop.Add(policyKeys...)
	}
}

// Check returns why the kernel does not forward Services, and why it does not apply NetworkPolicies.
func (n *Network) Check() error {
	policies, services := n.policiesErr.Load(), n.servicesErr.Load()
	switch {
	case policies != nil && services != nil:
		return fmt.Errorf("the addresses of Services are not forwarded, and NetworkPolicies are not applied: %w; "+
			"the kernel (5.6 or later) needs nftables with nat, fib, numgen, reject and connection tracking", *services)
	case policies != nil:
		return fmt.Errorf("NetworkPolicies are not applied: %w; "+
			"the kernel (5.6 or later) needs nftables with connection tracking", *policies)
	case services != nil:
		return fmt.Errorf("the addresses of Services are not forwarded: %w; "+
			"the kernel needs nftables with nat, fib, numgen and reject", *services)
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
	r := n.newRunning(health)
	defer r.proxy.Close()
	defer r.enforcer.Close()
	// The zero key removes the Services of an earlier process from the kernel, even if there are none now.
	start := []follow.Key{{}}
	if len(n.cfg.DNS) > 0 {
		start = append(start, dns.Key)
		r.zone = dns.NewZone(n.cfg.Domain, r.endpoints, n.cfg.Cluster)
		listens := make(chan struct{})
		group.Do(func() error { return r.serveDNS(ctx, listens) })
		select {
		case <-listens:
		case <-ctx.Done():
			return group.Wait()
		}
	}
	loop := follow.New(n.deps, follow.Config[follow.Key]{
		Name: Name, Sources: append(r.endpoints.Sources(), n.policies.sources(n.cfg.Node)...),
		Start: start, Reconcile: r.reconcile,
	})
	n.loop.Store(loop)
	if n.otherNodes.Load() {
		loop.FollowOptional()
	}
	group.Do(func() error { return loop.Run(ctx) })
	group.Do(func() error {
		for range nft.Watch(ctx) {
			r.rulesRemoved.Store(true)
			loop.AddAfter(settle, follow.Key{})
		}
		return nil
	})
	return group.Wait()
}

// settle is the time between a removal of rules by another program and the check of the tables: a flush is many
// removals, and programs that flush often load other rules after it.
const settle = 200 * time.Millisecond

// running is a Network while it runs.
type running struct {
	*Network
	endpoints  *endpoints.Cache
	proxy      *service.Proxy
	enforcer   *policyEnforcer
	zone       *dns.Zone        // nil: no DNS server
	dnsServers []netip.AddrPort // addresses at which the DNS server listens

	rulesRemoved atomic.Bool // another program removed rules from the kernel
}

func (n *Network) newRunning(health *service.HealthChecks) *running {
	return &running{
		Network: n, endpoints: endpoints.New(n.cfg.Node),
		proxy: service.New(service.Config{
			Table: n.cfg.Table, Node: service.Node{Name: n.cfg.Node, Pool: n.cfg.Pool},
			Bridge: n.cfg.Bridge, Bridges: n.cfg.Bridges, Pods: n.cfg.Pods, Families: n.cfg.Families,
			Health: health, Log: n.deps.Log,
		}),
		enforcer: newPolicyEnforcer(n.policies, n.cfg.Node,
			policy.Config{Table: n.cfg.Policy, Families: n.cfg.Families, Log: n.deps.Log}),
	}
}

func (r *running) serveDNS(ctx context.Context, listens chan struct{}) error {
	own := func() []netip.Addr { return slices.Concat(r.cfg.DNS, r.cfg.Gateways) }
	resolvers := dns.Resolvers(r.cfg.ResolvConf, own, modified)
	forward := dns.NewForwarder(resolvers, r.cfg.Stubs, r.deps.Clock, r.deps.Guard)
	server := dns.NewServer(r.zone, forward, r.deps.Guard, r.deps.Log)
	err := server.Serve(ctx, r.cfg.Gateways, dnsPort, func(at []netip.AddrPort) {
		r.dnsServers = at
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
	var verifyErr error
	if r.rulesRemoved.Swap(false) {
		verifyErr = errors.Join(r.enforcer.Verify(), r.proxy.Verify())
	}
	policiesErr := r.enforcer.reconcile()
	if policiesErr == nil {
		r.policiesErr.Store(nil)
	} else {
		r.policiesErr.Store(&policiesErr)
	}
	return 0, errors.Join(verifyErr, policiesErr, r.reconcileServices(ctx, key))
}

func (r *running) reconcileServices(ctx context.Context, key follow.Key) error {
	changed := r.endpoints.Take()
	r.proxy.SetZone(r.endpoints.Zone())
	for len(changed) > 0 {
		for key := range changed {
			delete(changed, key)
			if r.zone != nil {
				r.zone.Changed(key)
			}
			svc, eps := r.endpoints.Get(key)
			if key == dns.Key && r.zone != nil {
				svc, eps = dns.Local(svc, r.cfg.DNS, r.dnsServers, r.cfg.Node, eps)
			}
			for _, other := range r.proxy.Set(key, svc, eps) {
				changed[other] = struct{}{}
			}
		}
	}
	if err := r.proxy.Sync(); err != nil {
		r.servicesErr.Store(&err)
		return err
	}
	r.servicesErr.Store(nil)
	if r.zone == nil || key != dns.Key || r.cfg.Joined {
		return nil
	}
	return dns.Publish(ctx, r.deps.Client, r.cfg.DNS, r.dnsServers, r.cfg.Node)
}
