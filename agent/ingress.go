package agent

import (
	"context"
	"net"
	"net/netip"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/agent/network/gateway"
	"monopod/agent/network/ingress"
	"monopod/agent/network/ingress/proxy"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/health"
)

// superviseIngress returns the supervisor of the ingress controller; nil if it is disabled.
func (n *Node) superviseIngress() *follow.Supervisor {
	cfg := n.cfg.Settings.Ingress
	if !cfg.On() {
		return nil
	}
	cfg.Node, cfg.Dial = n.cfg.Settings.NodeName, n.dialer()
	deps := n.deps(ingress.Name)
	n.ingressController = ingress.New(deps, cfg)
	return follow.Supervise(n.ingressController, deps)
}

// superviseGateway returns the supervisor of the Gateway API's controller; nil on a machine that has joined, because
// the servers' nodes serve Gateways.
func (n *Node) superviseGateway() *follow.Supervisor {
	if n.Kinds == nil || n.cfg.Settings.Runtime == NoRuntime {
		return nil
	}
	deps := n.deps(gateway.Name)
	return follow.Supervise(gateway.New(deps, gateway.Config{
		Node: n.cfg.Settings.NodeName, Kinds: n.Kinds, Ingress: n.cfg.Settings.Ingress, Dial: n.dialer(),
		Fallback: func(scheme, port string) *proxy.Handler {
			if n.ingressController == nil {
				return nil
			}
			return n.ingressController.At(scheme, port)
		},
	}), deps)
}

// deps returns the dependencies of a controller that runs with the node.
func (n *Node) deps(name string) follow.Deps {
	metrics, err := follow.NewMetrics(n.Metrics)
	if err != nil {
		n.Log.Error("metrics of a controller are not served", zap.String("controller", name), zap.Error(err))
		metrics, _ = follow.NewMetrics(nil)
	}
	return follow.Deps{
		Client: n.Client, Clock: clock.RealClock{}, Log: n.Log.Named(name), Metrics: metrics, Guard: n.guard,
	}
}

// dialer returns the function that connects to pods; nil: over the machine's network.
func (n *Node) dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	if n.cfg.Settings.Runtime != "fake" {
		return nil
	}
	var machine net.Dialer
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if at, err := netip.ParseAddrPort(address); err == nil && n.Holds(at.Addr()) {
			return n.Dial(ctx, network, address)
		}
		return machine.DialContext(ctx, network, address)
	}
}

// Gateway returns why Gateways are not served; nil if they are, or if the Gateway API is not installed.
func (n *Node) Gateway(ctx context.Context) error {
	if n.gateway == nil {
		return nil
	}
	return n.gateway.Check(ctx)
}

// Ingress returns why Ingresses are not served, or a health.Notice about ports that others have; nil if they are, or if
// there is no ingress controller.
func (n *Node) Ingress(ctx context.Context) error {
	if n.ingress == nil {
		return nil
	}
	if err := n.ingress.Check(ctx); err != nil {
		return err
	}
	if text := n.ingressController.Missing(); text != "" {
		return health.Notice{Text: text}
	}
	return nil
}
