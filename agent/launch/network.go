package launch

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/agent/network"
	"monopod/agent/network/cni"
	"monopod/agent/pod/spec"
	"monopod/agent/runtime/containerd"
	"monopod/apiserver/follow"
	"monopod/apiserver/process/guard"
)

// serveServices returns what serves Services in the network of the child's pods.
func (n *Node) serveServices(child *containerd.Child) (*follow.Supervisor, error) {
	metrics, err := follow.NewMetrics(n.Metrics)
	if err != nil {
		return nil, err
	}
	deps := follow.Deps{Client: n.Client, Clock: clock.RealClock{}, Log: n.Log.Named(network.Name), Metrics: metrics}
	s := follow.Supervise(follow.Task(network.Name, func(ctx context.Context) error {
		pods, err := child.Network(ctx)
		if err != nil {
			return nil // ctx has ended
		}
		served := network.New(deps, network.Config{
			Node: n.cfg.Settings.NodeName, Bridge: pods.Bridge, Bridges: cni.BridgePrefix, Table: pods.ServiceTable(), Gateway: pods.Gateway(),
			Own: append([]netip.Prefix{pods.Subnet}, n.cfg.Services...), DNS: n.dnsServer(), Domain: n.domain(),
		})
		n.served.Store(served)
		guard.Together(ctx,
			func(ctx context.Context) {
				if err := n.Listen(ctx, pods.Gateway(), pods.Subnet); err != nil {
					deps.Log.Error("pods cannot reach the API server", zap.Error(err))
				}
			},
			func(ctx context.Context) { err = served.Run(ctx) })
		return err
	}), deps)
	n.network.Store(s)
	return s, nil
}

// dnsIndex is the place of the DNS server's Service in the range of Services, as kubeadm has it.
const dnsIndex = 10

// dnsServer returns the address of the Service of our DNS server; invalid: pods use another one.
func (n *Node) dnsServer() netip.Addr {
	if len(n.cfg.Settings.Cluster.DNS) > 0 || len(n.cfg.Services) == 0 {
		return netip.Addr{}
	}
	ip := n.cfg.Services[0].Addr()
	for range dnsIndex {
		ip = ip.Next()
	}
	if !n.cfg.Services[0].Contains(ip) || !ip.Is4() { // a very small range
		return netip.Addr{}
	}
	return ip
}

// domain returns the domain of the cluster for our DNS server.
func (n *Node) domain() string { return cmp.Or(n.cfg.Settings.Cluster.Domain, "cluster.local") }

// cluster returns what pods use to resolve names, with our DNS server if the pods' network is ours.
func (n *Node) cluster(ours bool) spec.Cluster {
	c := n.cfg.Settings.Cluster
	if slices.Equal(c.DNS, []string{spec.NoDNS}) {
		c.DNS = nil
		return c
	}
	if server := n.dnsServer(); ours && server.IsValid() {
		c.DNS, c.Domain = []string{server.String()}, n.domain()
	}
	return c
}

// Network returns why Services are not served; nil if they are, or if the pods' network is not ours.
func (n *Node) Network(ctx context.Context) error {
	s, served := n.network.Load(), n.served.Load()
	if s == nil {
		return nil
	}
	if err := s.Check(ctx); err != nil || served == nil {
		return err
	}
	return served.Check()
}
