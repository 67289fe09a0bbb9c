package policy

import (
	"errors"
	"net/netip"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/network/nft"
)

// Config of an Enforcer. Table and Families are required.
type Config struct {
	Table    string // name of the nftables tables
	Families []corev1.IPFamily
	Log      *zap.Logger // nil: nothing is logged
}

// Enforcer stores the state of Pods, Namespaces and NetworkPolicies, and applies the policies in the kernel. Its
// methods are not safe for concurrent use.
type Enforcer struct {
	*state
	log *zap.Logger
}

// New returns an Enforcer that does not know any policies yet.
func New(cfg Config) *Enforcer {
	var layouts []*layout
	for _, family := range cfg.Families {
		layouts = append(layouts, newLayout(cfg.Table, family))
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Enforcer{newState(layouts...), cfg.Log}
}

// SetNamespace sets the state of a namespace; nil: it no longer exists.
func (e *Enforcer) SetNamespace(name string, ns *corev1.Namespace) {
	if ns == nil {
		e.setNamespace(name, nil, false)
	} else {
		e.setNamespace(name, ns.Labels, true)
	}
}

// SetPod sets the state of a pod of this node; nil: it no longer exists, or policies do not apply to it.
func (e *Enforcer) SetPod(key types.NamespacedName, p *Pod) { e.setPod(key, p) }

// SetPolicy replaces a policy; nil: it no longer exists. An invalid policy, which the API server rejects, isolates all
// pods of its namespace.
func (e *Enforcer) SetPolicy(key types.NamespacedName, p *networkingv1.NetworkPolicy) {
	if p == nil {
		e.setPolicy(key, nil)
		return
	}
	c, err := compile(p)
	if err != nil {
		e.log.Warn("invalid NetworkPolicy: the pods of its namespace are isolated", zap.Stringer("networkPolicy", key),
			zap.Error(err))
		c = &compiled{subject: labels.Everything(), ingress: new([]rule), egress: new([]rule)}
	}
	e.setPolicy(key, c)
}

// Sync brings the kernel to the desired state, in one transaction for each family.
func (e *Enforcer) Sync() error {
	var errs []error
	for _, t := range e.tables {
		_, err := t.Sync(func(element func(nft.Element), part func(nft.Part)) { e.all(t, element, part) })
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Close closes the connections to the kernel, which keeps the tables.
func (e *Enforcer) Close() {
	for _, t := range e.tables {
		t.Close()
	}
}

// Verify checks that the kernel still has the tables. The next Sync writes those that another program removed.
func (e *Enforcer) Verify() error {
	var errs []error
	for _, t := range e.tables {
		errs = append(errs, t.Verify())
	}
	return errors.Join(errs...)
}

// Of returns the facts about a pod that policies need, with the addresses of its status. It returns nil for pods to
// which policies do not apply: pods on the host's network, and pods that have ended.
func Of(p *corev1.Pod) *Pod {
	if p == nil || p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	out := &Pod{Labels: p.Labels}
	for _, ip := range p.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil {
			out.Addrs = append(out.Addrs, addr.Unmap())
		}
	}
	for i := range p.Spec.Containers {
		out.addPorts(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers { // upstream resolves names also to the ports of sidecars
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out.addPorts(c)
		}
	}
	return out
}

func (p *Pod) addPorts(c *corev1.Container) {
	for _, port := range c.Ports {
		protocol := port.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		n := Port{namedPort{protocol, port.Name}, uint16(port.ContainerPort)}
		if port.Name != "" && !slices.Contains(p.Ports, n) {
			p.Ports = append(p.Ports, n)
		}
	}
}
