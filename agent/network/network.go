// Package network serves Services to the pods of a node and to the node itself.
//
//   - view: Services and EndpointSlices, as the API has them
//   - service: the addresses of Services, which the kernel translates to those of endpoints
//   - dns: the names of Services
//   - cni: the pods' addresses and links
package network

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/network/dns"
	"monopod/agent/network/service"
	"monopod/agent/network/view"
	"monopod/apiserver/follow"
	"monopod/apiserver/process/guard"
)

// Name of the controller.
const Name = "network"

// Config of a Network. Node, Bridge and Table are required.
type Config struct {
	Node    string         // name of the node
	Bridge  string         // link of the pods
	Bridges string         // prefix of the names of such links of all instances on the machine
	Table   string         // name of the nftables tables of Services
	Gateway netip.Addr     // of the pods: the address of Bridge
	Own     []netip.Prefix // addresses of pods and Services

	// DNS is the address of the DNS server's Service; the zero value: no DNS server.
	DNS        netip.Addr
	Domain     string // of the cluster
	ResolvConf string // names the resolvers of the node; empty: /etc/resolv.conf
}

// Network follows the API and updates the kernel and the DNS server.
type Network struct {
	deps   follow.Deps
	cfg    Config
	failed atomic.Pointer[error] // of the last attempt to write to the kernel; nil: none
}

var _ follow.Controller = (*Network)(nil)

// New returns a Network; Run starts it.
func New(deps follow.Deps, cfg Config) *Network {
	if cfg.ResolvConf == "" {
		cfg.ResolvConf = "/etc/resolv.conf"
	}
	return &Network{deps: deps, cfg: cfg}
}

// Name implements follow.Controller.
func (n *Network) Name() string { return Name }

// Check returns why the kernel does not forward Services.
func (n *Network) Check() error {
	if err := n.failed.Load(); err != nil {
		return fmt.Errorf("the addresses of Services are not forwarded: %w; the kernel needs nftables with nat, fib, numgen and reject", *err)
	}
	return nil
}

// dnsPort is the port of the DNS server, unless another program of the node uses it.
const dnsPort = 53

// Run implements follow.Controller. Its tables stay in the kernel when it ends, so that pods' connections continue.
func (n *Network) Run(ctx context.Context) error {
	group, ctx := guard.With(ctx)
	health := service.NewHealth(ctx, n.deps.Log)
	defer health.Wait()
	r := &running{Network: n, seen: view.New(), proxy: service.New(service.Config{
		Table: n.cfg.Table, Node: n.cfg.Node, Bridge: n.cfg.Bridge, Bridges: n.cfg.Bridges, Families: []corev1.IPFamily{corev1.IPv4Protocol}, Health: health, Log: n.deps.Log,
	})}
	// Also without Services, because an earlier process may have left some in the kernel.
	start := []follow.Key{{}}
	if n.cfg.DNS.IsValid() {
		start = append(start, dns.Key)
		r.zone = dns.NewZone(n.cfg.Domain, r.seen, n.cfg.Own)
		listens := make(chan struct{})
		group.Do(func() error { return r.serveDNS(ctx, listens) })
		select {
		case <-listens:
		case <-ctx.Done():
			return group.Wait()
		}
	}
	group.Do(func() error {
		return follow.New(n.deps, follow.Config[follow.Key]{Name: Name, Sources: r.seen.Sources(), Start: start, Reconcile: r.reconcile}).Run(ctx)
	})
	return group.Wait()
}

// running is a Network while it runs.
type running struct {
	*Network
	seen  *view.View
	proxy *service.Proxy
	zone  *dns.Zone      // nil: no DNS server
	dns   netip.AddrPort // where it listens
}

func (r *running) serveDNS(ctx context.Context, listens chan struct{}) error {
	own := func() []netip.Addr { return []netip.Addr{r.cfg.DNS, r.cfg.Gateway} }
	forward := dns.NewForwarder(dns.Resolvers(r.cfg.ResolvConf, own, modified), r.deps.Clock)
	err := dns.NewServer(r.zone, forward, r.deps.Log).Serve(ctx, netip.AddrPortFrom(r.cfg.Gateway, dnsPort), func(at netip.AddrPort) {
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

// reconcile writes all changes to the kernel in one transaction, so that later keys have nothing to write.
func (r *running) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	for changed := r.seen.Take(); len(changed) > 0; {
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
		return 0, err
	}
	r.failed.Store(nil)
	if r.zone == nil || key != dns.Key {
		return 0, nil
	}
	return 0, dns.Publish(ctx, r.deps.Client, r.cfg.DNS, r.dns, r.cfg.Node)
}
