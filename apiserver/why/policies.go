package why

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Describe returns what a NetworkPolicy allows, one phrase for each direction that it limits.
func Describe(p *networkingv1.NetworkPolicy) (phrases []string) {
	for _, direction := range p.Spec.PolicyTypes {
		var allowed []string
		if direction == networkingv1.PolicyTypeIngress {
			for _, r := range p.Spec.Ingress {
				allowed = append(allowed, "from "+rule(r.From, r.Ports))
			}
			phrases = append(phrases, only("no pod may reach them", "only these may reach them: connections ", allowed))
			continue
		}
		for _, r := range p.Spec.Egress {
			allowed = append(allowed, "to "+rule(r.To, r.Ports))
		}
		phrases = append(phrases, only("they may reach nothing", "they may open only connections ", allowed))
	}
	return phrases
}

func only(none, some string, allowed []string) string {
	if len(allowed) == 0 {
		return none
	}
	return some + strings.Join(allowed, ", or ")
}

// rule describes the peers and ports that one rule allows.
func rule(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) string {
	who := []string{"anywhere"}
	if len(peers) > 0 {
		who = nil
	}
	for _, p := range peers {
		who = append(who, peerOf(p))
	}
	text := strings.Join(who, " or ")
	var at []string
	for _, p := range ports {
		protocol, port := "TCP", "any"
		if p.Protocol != nil {
			protocol = string(*p.Protocol)
		}
		if p.Port != nil {
			port = p.Port.String()
		}
		if p.EndPort != nil {
			port += fmt.Sprintf("-%d", *p.EndPort)
		}
		at = append(at, protocol+" port "+port)
	}
	if len(at) > 0 {
		text += " at " + strings.Join(at, " or ")
	}
	return text
}

func peerOf(p networkingv1.NetworkPolicyPeer) string {
	if p.IPBlock != nil {
		text := p.IPBlock.CIDR
		if len(p.IPBlock.Except) > 0 {
			text += " except " + strings.Join(p.IPBlock.Except, ", ")
		}
		return text
	}
	pods := "all pods"
	if p.PodSelector != nil && (len(p.PodSelector.MatchLabels) > 0 || len(p.PodSelector.MatchExpressions) > 0) {
		pods = "pods with " + metav1.FormatLabelSelector(p.PodSelector)
	}
	switch {
	case p.NamespaceSelector == nil:
		return pods + " of the namespace"
	case len(p.NamespaceSelector.MatchLabels) == 0 && len(p.NamespaceSelector.MatchExpressions) == 0:
		return pods + " of all namespaces"
	}
	return pods + " of namespaces with " + metav1.FormatLabelSelector(p.NamespaceSelector)
}

// Line describes what a NetworkPolicy allows, as evidence.
func Line(p *networkingv1.NetworkPolicy) string {
	return fmt.Sprintf("NetworkPolicy %s: %s", p.Name, strings.Join(Describe(p), "; "))
}

// Selects reports whether a NetworkPolicy selects a pod and limits this direction.
func Selects(p *networkingv1.NetworkPolicy, pod *corev1.Pod, direction networkingv1.PolicyType) bool {
	if p.Namespace != pod.Namespace || !slices.Contains(p.Spec.PolicyTypes, direction) {
		return false
	}
	s, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	return err == nil && s.Matches(labels.Set(pod.Labels))
}

// Closed returns the names of the NetworkPolicies that together deny all ingress to all of these pods, or nil if a pod
// can be reached. The evidence describes every policy that limits the ingress of one of them.
func Closed(all []*networkingv1.NetworkPolicy, pods []*corev1.Pod) (by, evidence []string) {
	closed := len(pods) > 0
	for _, pod := range pods {
		limited, open := false, false
		for _, p := range all {
			if !Selects(p, pod, networkingv1.PolicyTypeIngress) {
				continue
			}
			limited, open = true, open || len(p.Spec.Ingress) > 0
			if !slices.Contains(by, p.Name) {
				by, evidence = append(by, p.Name), append(evidence, Line(p))
			}
		}
		closed = closed && limited && !open
	}
	if !closed {
		by = nil
	}
	return by, evidence
}
