package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/agent/host"
	"monopod/agent/network"
	"monopod/agent/network/cni"
	"monopod/agent/network/nodes"
	"monopod/agent/podapi/spec"
	"monopod/agent/runtime/containerd"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/podcidr"
)

// serveServices returns the supervisor of Services, DNS and NetworkPolicies in the network of the child's pods.
func (n *Node) serveServices(child *containerd.Child) (*follow.Supervisor, error) {
	metrics, err := follow.NewMetrics(n.Metrics)
	if err != nil {
		return nil, err
	}
	deps := follow.Deps{
		Client: n.Client, Clock: clock.RealClock{}, Log: n.Log.Named(network.Name), Metrics: metrics, Guard: n.guard,
	}
	s := follow.Supervise(follow.Task(network.Name, func(ctx context.Context) error {
		pods, err := child.Network(ctx)
		if err != nil {
			return nil // ctx has ended
		}
		all, err := pods.ConnectedPods()
		if err != nil {
			deps.Log.Warn("NetworkPolicies do not apply to some pods until their statuses are written", zap.Error(err))
		}
		var connected []network.Connected
		for _, s := range all {
			connected = append(connected, network.Connected(s))
		}
		served := network.New(deps, network.Config{
			Node: n.cfg.Settings.NodeName, Bridge: pods.Bridge, Bridges: cni.BridgePrefix, Table: pods.ServiceTable(),
			Policy: pods.PolicyTable(), Gateways: pods.Gateways(), Families: familiesOf(pods.Subnets),
			Pods: pods.Subnets, Joined: n.cfg.Joined,
			Cluster: append(slices.Clone(pods.Subnets), n.cfg.Services...), DNS: n.dnsServers(), Domain: n.clusterDomain(),
			Stubs: n.cfg.Settings.Network.Stubs, Pool: n.cfg.LoadBalancers, Connected: connected,
		})
		if n.podNetwork.Swap(served) == nil {
			close(n.podNetworkReady)
		}
		first := 0 // the bridge's address of the family of the Service kubernetes
		if len(n.cfg.Services) > 0 {
			first = max(0, slices.Index(familiesOf(pods.Subnets), familiesOf(n.cfg.Services)[0]))
		}
		guard.Together(ctx,
			func(ctx context.Context) {
				if err := n.Listen(ctx, pods.Gateways()[first], pods.Holds); err != nil {
					deps.Log.Error("pods cannot reach the API server", zap.Error(err))
				}
			},
			func(ctx context.Context) { cni.Keep(ctx, pods, deps.Log) },
			func(ctx context.Context) { n.reachNodes(ctx, pods, served, deps) },
			func(ctx context.Context) { err = served.Run(ctx) })
		return err
	}), deps)
	n.networkSupervisor.Store(s)
	return s, nil
}

// reachNodes keeps the pods of other nodes reachable until ctx ends.
func (n *Node) reachNodes(ctx context.Context, pods cni.Network, served *network.Network, deps follow.Deps) {
	cfg := &n.cfg.Settings.Network
	deps.Log = n.Log.Named(nodes.Name)
	machine := &nodes.Kernel{Network: pods, KeyFile: n.path("wireguard.key"), Port: cfg.WireGuardPort,
		Load: func(module string) error { return host.LoadModule("/", module) }}
	reach := nodes.New(deps, machine, nodes.Config{
		Node: n.cfg.Settings.NodeName, Mode: nodes.Mode(cfg.NodeNetwork), Subnets: pods.Subnets, Endpoint: cfg.endpoint,
		Port: cfg.WireGuardPort, Several: served.FollowOtherNodes, Off: func() bool { return !pods.IsOwn() },
	})
	if err := follow.Supervise(reach, deps).Run(ctx); err != nil {
		deps.Log.Error("the pods of other nodes may not be reachable", zap.Error(err))
	}
}

// admitPod implements cni.Admit.
func (n *Node) admitPod(ctx context.Context, pod types.NamespacedName, uid types.UID, addrs []netip.Addr) error {
	select {
	case <-n.podNetworkReady:
		return n.podNetwork.Load().Admit(ctx, pod, uid, addrs)
	case <-ctx.Done():
		return fmt.Errorf("wait for the pod network: %w", ctx.Err())
	}
}

// dnsIndex is the index of the DNS server's address in the range of Services, like kubeadm's.
const dnsIndex = 10

// choosesPodCIDRs reports whether the node chooses the ranges of Monopod's own pod network; otherwise the node IPAM
// controller does. With a CNI network of the administrator, which may use those of the controller, they must differ.
func (n *Node) choosesPodCIDRs() bool {
	network := &n.cfg.Settings.Network
	return !n.cfg.PodCIDRsFromNode || len(network.ranges) > 0 || network.isCNI()
}

// ownPodCIDRs reports whether the node sets spec.podCIDRs. The pod network of an administrator may use those of the
// node IPAM controller.
func (n *Node) ownPodCIDRs(child *containerd.Child) bool {
	pods := child.Prepared()
	return n.choosesPodCIDRs() && !n.cfg.Settings.Network.isCNI() && (pods.Dir == "" || pods.IsOwn())
}

// podCIDRs returns the ranges of pods' addresses; nil while they are unknown, or if the node does not set them.
func (n *Node) podCIDRs(child *containerd.Child) []string {
	pods := child.Prepared()
	if pods.Dir == "" || !n.ownPodCIDRs(child) {
		return nil
	}
	var out []string
	for _, subnet := range pods.Subnets {
		out = append(out, subnet.String())
	}
	return out
}

// givenPodCIDRsTimeout limits the wait for the API server at a start for which the ranges of the last one would do.
const givenPodCIDRsTimeout = 3 * time.Second

// givenPodCIDRs returns the ranges that the node IPAM controller has given the Node, and waits for them. While the API
// server cannot be reached, it returns those of the previous start, if there are any.
func (n *Node) givenPodCIDRs(ctx context.Context, previous []netip.Prefix) ([]netip.Prefix, error) {
	name := n.cfg.Settings.NodeName
	asking, cancel := context.WithTimeout(ctx, givenPodCIDRsTimeout)
	node, err := client.Get[*corev1.Node](asking, n.Client, "", name)
	cancel()
	switch {
	case err == nil && len(podcidr.Of(node)) > 0:
		return podcidr.Of(node), nil
	case err != nil && !apierrors.IsNotFound(err) && len(previous) > 0:
		n.Log.Info("the API server cannot be reached: pods have addresses of the same ranges as before", zap.Error(err))
		return previous, nil
	}
	n.Log.Info("waiting for spec.podCIDRs of the Node", zap.String("node", name))
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var ranges []netip.Prefix
	seen := func(obj client.Object) {
		if found := podcidr.Of(obj.(*corev1.Node)); len(found) > 0 && ranges == nil {
			ranges = found
			stop()
		}
	}
	f := follow.Follower{Client: n.Client, Clock: clock.RealClock{}, Log: n.Log, Name: "pod ranges"}
	f.Follow(waiting, client.Ref{Resource: client.Nodes, Name: name}.Selector(),
		follow.Handler{
			List: func(_ context.Context, objs []client.Object) {
				for _, obj := range objs {
					seen(obj)
				}
			},
			Event: func(_ context.Context, typ watch.EventType, obj client.Object) {
				if typ != watch.Deleted {
					seen(obj)
				}
			},
		})
	return ranges, ctx.Err()
}

// dnsServers returns the addresses of the Service of Monopod's DNS server, one in each range of Services; none if
// --cluster-dns names another server.
func (n *Node) dnsServers() []netip.Addr {
	if len(n.cfg.Settings.Cluster.DNS) > 0 {
		return nil
	}
	var out []netip.Addr
	for _, services := range n.cfg.Services {
		ip := services.Addr()
		for range dnsIndex {
			ip = ip.Next()
		}
		if services.Contains(ip) { // false for a very small range
			out = append(out, ip)
		}
	}
	return out
}

// clusterDomain returns the domain of the cluster for Monopod's DNS server.
func (n *Node) clusterDomain() string { return cmp.Or(n.cfg.Settings.Cluster.Domain, "cluster.local") }

// clusterDNS returns the DNS servers and the domain of pods: Monopod's DNS server if the pod network is Monopod's own.
func (n *Node) clusterDNS(ours bool) spec.Cluster {
	c := n.cfg.Settings.Cluster
	if slices.Equal(c.DNS, []string{spec.NoDNS}) {
		c.DNS = nil
		return c
	}
	if servers := n.dnsServers(); ours && len(servers) > 0 {
		c.DNS, c.Domain = nil, n.clusterDomain()
		for _, ip := range servers {
			c.DNS = append(c.DNS, ip.String())
		}
	}
	return c
}

// Network returns why Services are not served; nil if they are, or if the pod network is not Monopod's own.
func (n *Node) Network(ctx context.Context) error {
	s, served := n.networkSupervisor.Load(), n.podNetwork.Load()
	if s == nil {
		return nil
	}
	if err := s.Check(ctx); err != nil || served == nil {
		return err
	}
	return served.Check()
}
