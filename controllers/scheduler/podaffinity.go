package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// podAffinity checks the pod's required affinity and anti-affinity to other pods, and the anti-affinity of
// running pods.
func podAffinity(pod *corev1.Pod, on *nodeState) []string {
	for _, term := range antiAffinity(pod) {
		if on.domainHas(term.TopologyKey, func(p *corev1.Pod) bool { return selects(&term, pod, p) }) {
			return []string{"node(s) didn't match pod anti-affinity rules"}
		}
	}
	if on.cluster.repels(pod, on) {
		return []string{"node(s) didn't satisfy existing pods anti-affinity rules"}
	}
	for _, term := range requiredAffinity(pod) {
		if !attracted(&term, pod, on) {
			return []string{"node(s) didn't match pod affinity rules"}
		}
	}
	return nil
}

func antiAffinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

func requiredAffinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
		return a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// attracted reports whether a pod that the term selects runs in the node's domain, or none runs anywhere and the
// pod itself matches the term.
func attracted(term *corev1.PodAffinityTerm, pod *corev1.Pod, on *nodeState) bool {
	match := func(p *corev1.Pod) bool { return selects(term, pod, p) }
	if on.domainHas(term.TopologyKey, match) {
		return true
	}
	_, inDomain := on.node.Labels[term.TopologyKey]
	return inDomain && selects(term, pod, pod) && !on.cluster.any(match)
}

// selects reports whether a term of owner's selects the pod p. The only label of namespaces here is their name.
func selects(term *corev1.PodAffinityTerm, owner, p *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	return err == nil && selectsNamespace(term, owner.Namespace, p.Namespace) && selector.Matches(labels.Set(p.Labels))
}

func selectsNamespace(term *corev1.PodAffinityTerm, own, namespace string) bool {
	if len(term.Namespaces) == 0 && term.NamespaceSelector == nil {
		return own == namespace
	}
	if slices.Contains(term.Namespaces, namespace) {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(term.NamespaceSelector)
	return err == nil && selector.Matches(labels.Set{corev1.LabelMetadataName: namespace})
}

// domainHas reports whether a matching pod is on any node with the same value of the topology label; a node
// without the label is in no domain.
func (s *nodeState) domainHas(key string, match func(*corev1.Pod) bool) bool {
	value, ok := s.node.Labels[key]
	if !ok {
		return false
	}
	for _, other := range s.cluster.nodes {
		if other.node == nil || other.node.Labels[key] != value {
			continue
		}
		for _, p := range other.pods {
			if match(p.pod) {
				return true
			}
		}
	}
	return false
}

// any reports whether a matching pod is on any node.
func (c *cache) any(match func(*corev1.Pod) bool) bool {
	for _, p := range c.pods {
		if match(p.pod) {
			return true
		}
	}
	return false
}

// repels reports whether the anti-affinity of a pod in the node's domain excludes this one.
func (c *cache) repels(pod *corev1.Pod, on *nodeState) bool {
	for p := range c.loners {
		other := c.nodes[p.node]
		if other.node == nil {
			continue
		}
		for _, term := range antiAffinity(p.pod) {
			value, ok := on.node.Labels[term.TopologyKey]
			if ok && other.node.Labels[term.TopologyKey] == value && selects(&term, p.pod, pod) {
				return true
			}
		}
	}
	return false
}
