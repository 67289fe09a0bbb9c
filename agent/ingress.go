package agent

import (
	"context"
	"net"
	"net/netip"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/agent/network/ingress"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/health"
)

// superviseIngress returns the supervisor of the ingress controller; nil if it is disabled.
func (n *Node) superviseIngress() *follow.Supervisor {
	cfg := n.cfg.Settings.Ingress
	if !cfg.On() {
		return nil
	}
	metrics, err := follow.NewMetrics(n.Metrics)
	if err != nil {
		n.Log.Error("metrics of the ingress controller are not served", zap.Error(err))
		metrics, _ = follow.NewMetrics(nil)
	}
	cfg.Node, cfg.Dial = n.cfg.Settings.NodeName, n.dialer()
	deps := follow.Deps{
		Client: n.Client, Clock: clock.RealClock{}, Log: n.Log.Named(ingress.Name), Metrics: metrics, Guard: n.guard,
	}
	n.ingressController = ingress.New(deps, cfg)
	return follow.Supervise(n.ingressController, deps)
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
