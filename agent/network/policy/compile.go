package policy

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// rule allows connections with some peers at some ports.
type rule struct {
	anyPeer bool // instead of peers and blocks
	peers   []selector
	blocks  ranges
	anyPort bool // instead of ports and named
	ports   []portRange
	named   []namedPort
}

// selector selects pods by the labels of their namespaces and their own.
type selector struct {
	namespace  string // if namespaces is nil
	namespaces labels.Selector
	pods       labels.Selector
}

// text is equal for equal selectors.
func (s selector) text() string {
	if s.namespaces == nil {
		return fmt.Sprintf("in %s: %s", s.namespace, s.pods)
	}
	return fmt.Sprintf("of [%s]: %s", s.namespaces, s.pods)
}

// portRange is a range of ports of a protocol, both ends included.
type portRange struct {
	protocol    corev1.Protocol
	first, last uint16
}

// namedPort is the name of a port of the pods at the destination.
type namedPort struct {
	protocol corev1.Protocol
	name     string
}

// compiled is a NetworkPolicy.
type compiled struct {
	subject         labels.Selector
	ingress, egress *[]rule // nil: the policy does not isolate in this direction
}

// compile parses the selectors and ranges of a policy.
func compile(p *networkingv1.NetworkPolicy) (*compiled, error) {
	subject, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil {
		return nil, err
	}
	c := &compiled{subject: subject}
	types := p.Spec.PolicyTypes
	if len(types) == 0 { // the API server's default
		types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			types = append(types, networkingv1.PolicyTypeEgress)
		}
	}
	if slices.Contains(types, networkingv1.PolicyTypeIngress) {
		c.ingress = new([]rule)
		for _, r := range p.Spec.Ingress {
			if err := add(c.ingress, p.Namespace, r.From, r.Ports); err != nil {
				return nil, err
			}
		}
	}
	if slices.Contains(types, networkingv1.PolicyTypeEgress) {
		c.egress = new([]rule)
		for _, r := range p.Spec.Egress {
			if err := add(c.egress, p.Namespace, r.To, r.Ports); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

func add(rules *[]rule, namespace string, peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort) error {
	r := rule{anyPeer: len(peers) == 0, anyPort: len(ports) == 0}
	for _, peer := range peers {
		if peer.IPBlock != nil {
			block, err := blockRanges(peer.IPBlock)
			if err != nil {
				return err
			}
			r.blocks = append(r.blocks, block...)
			continue
		}
		s, err := selectorOf(namespace, peer)
		if err != nil {
			return err
		}
		r.peers = append(r.peers, s)
	}
	r.blocks = r.blocks.merged()
	for _, p := range ports {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		switch {
		case p.Port == nil:
			r.ports = append(r.ports, portRange{protocol, 0, 65535})
		case p.Port.Type == intstr.String:
			r.named = append(r.named, namedPort{protocol, p.Port.StrVal})
		default:
			first := uint16(p.Port.IntVal)
			last := first
			if p.EndPort != nil {
				last = uint16(*p.EndPort)
			}
			r.ports = append(r.ports, portRange{protocol, first, last})
		}
	}
	*rules = append(*rules, r)
	return nil
}

func selectorOf(namespace string, peer networkingv1.NetworkPolicyPeer) (s selector, err error) {
	s.pods = labels.Everything()
	if peer.PodSelector != nil {
		if s.pods, err = metav1.LabelSelectorAsSelector(peer.PodSelector); err != nil {
			return s, err
		}
	}
	if peer.NamespaceSelector == nil {
		s.namespace = namespace
		return s, nil
	}
	s.namespaces, err = metav1.LabelSelectorAsSelector(peer.NamespaceSelector)
	return s, err
}

// mergedPorts returns the ports sorted, and ranges that touch as one.
func mergedPorts(ports []portRange) []portRange {
	sorted := slices.SortedFunc(slices.Values(ports), func(a, b portRange) int {
		return slices.Compare([]int{rank(a.protocol), int(a.first)}, []int{rank(b.protocol), int(b.first)})
	})
	var out []portRange
	for _, p := range sorted {
		if n := len(out); n > 0 && out[n-1].protocol == p.protocol && int(p.first) <= int(out[n-1].last)+1 {
			out[n-1].last = max(out[n-1].last, p.last)
			continue
		}
		out = append(out, p)
	}
	return out
}

func rank(p corev1.Protocol) int {
	return slices.Index([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, p)
}
