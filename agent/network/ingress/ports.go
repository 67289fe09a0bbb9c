package ingress

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/network/ingress/proxy"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/listener"
	"monopod/apiserver/kit/record"
)

// taken are the automatic ports that are not served, by scheme, and who has them.
type taken map[string]string

// errPorts ends a run because other ports are free than at its start.
var errPorts = errors.New("other ports are free")

// The intervals at which taken ports are tried again.
const (
	firstPortRetry = time.Second
	maxPortRetry   = 5 * time.Minute
)

// open listens at the configured addresses, or at none of them. Automatic ports may be missing.
func (c *Controller) open(ctx context.Context) (servers []*proxy.Server, missing taken, err error) {
	missing = taken{}
	for _, one := range []struct{ scheme, address string }{{"http", c.cfg.HTTP}, {"https", c.cfg.HTTPS}} {
		if one.address == "" {
			continue
		}
		var s *proxy.Server
		if c.cfg.automatic[one.scheme] {
			s, missing[one.scheme], err = c.tryPort(ctx, one.scheme, one.address)
		} else {
			s, err = proxy.Listen(one.scheme, one.address)
		}
		if err != nil {
			for _, s := range servers {
				s.Close()
			}
			return nil, nil, err
		}
		if s == nil {
			continue
		}
		delete(missing, one.scheme)
		servers = append(servers, s)
		c.deps.Log.Info("ingress controller listens", zap.String("scheme", s.Scheme), zap.String("port", s.Port))
	}
	return servers, missing, nil
}

// tryPort listens at an automatic port, or returns who has it. It fails only if the API does.
func (c *Controller) tryPort(ctx context.Context, scheme, address string) (s *proxy.Server, by string, err error) {
	_, port, _ := net.SplitHostPort(address)
	pods, err := client.List[*corev1.Pod](ctx, c.deps.Client, client.Selector{})
	if err != nil {
		return nil, "", err
	}
	for _, pod := range pods {
		if needs(pod, c.cfg.Node, port) {
			return nil, fmt.Sprintf("port %s is left to pod %s/%s", port, pod.Namespace, pod.Name), nil
		}
	}
	if s, err = proxy.Listen(scheme, address); err == nil {
		return s, "", nil
	}
	if holder := listener.Of("/proc", address); holder != "" {
		return nil, fmt.Sprintf("port %s is taken by %s", port, holder), nil
	}
	return nil, fmt.Sprintf("port %s is not free: %s", port, err), nil
}

// needs reports whether a pod on the node has the node's network and a container with the port. The ports of other pods
// and of Services are in the kernel's rules and need no free port.
func needs(pod *corev1.Pod, node, port string) bool {
	if pod.Spec.NodeName != node || !pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded ||
		pod.Status.Phase == corev1.PodFailed {
		return false
	}
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
			return strconv.Itoa(int(p.ContainerPort)) == port && p.Protocol != corev1.ProtocolUDP
		})
	})
}

// awaitPorts returns errPorts when a missing port is free, or a pod needs one that is served.
func (c *Controller) awaitPorts(ctx context.Context, missing taken, yield <-chan struct{}) error {
	addresses := map[string]string{"http": c.cfg.HTTP, "https": c.cfg.HTTPS}
	for wait := firstPortRetry; ; wait = min(2*wait, maxPortRetry) {
		timer := c.deps.Clock.NewTimer(wait)
		if len(missing) == 0 {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-yield:
			timer.Stop()
			return errPorts
		case <-timer.C():
		}
		for scheme := range missing {
			if s, _, err := c.tryPort(ctx, scheme, addresses[scheme]); err == nil && s != nil {
				s.Close()
				return errPorts
			}
		}
	}
}

// announce logs which ports are missing, and records an Event of the node.
func (c *Controller) announce(missing taken, events record.Eventer) {
	before := c.taken.Swap(&missing)
	if len(missing) == 0 || before != nil && maps.Equal(*before, missing) {
		return
	}
	c.deps.Log.Warn("Ingresses are not served on all ports", zap.String("why", missing.String()))
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: c.cfg.Node, UID: types.UID(c.cfg.Node)}}
	events.Eventf(node, corev1.EventTypeWarning, "IngressPortTaken", "%s", missing.String())
}

// String returns who has the ports, and what to do.
func (t taken) String() string {
	if len(t) == 0 {
		return ""
	}
	var texts []string
	for _, scheme := range slices.Sorted(maps.Keys(t)) {
		texts = append(texts, t[scheme])
	}
	return "The ingress controller does not listen on all ports: " + strings.Join(texts, ", ") +
		"; set --ingress and --ingress-https to other addresses, or to off"
}

// Missing returns which ports are not served because others have them; empty: none.
func (c *Controller) Missing() string {
	if t := c.taken.Load(); t != nil {
		return t.String()
	}
	return ""
}
