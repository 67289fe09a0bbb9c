// Package predicates decides with the scheduler's predicates whether a pod can run on a node together with others.
package predicates

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	compresource "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"monopod/agent/podapi/amount"
	"monopod/agent/podapi/status"
	"monopod/agent/resources/deviceplugin"
)

// Handler returns why a pod cannot run on node together with others; nil if it can.
type Handler func(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) *status.Failure

// Rejected returns the failure of a pod that is not admitted, with upstream's message.
func Rejected(reason, format string, args ...any) *status.Failure {
	return &status.Failure{Reason: reason, Message: "Pod was rejected: " + fmt.Sprintf(format, args...)}
}

// NodeName checks whether the pod is bound to this node.
func NodeName(pod *corev1.Pod, _ []*corev1.Pod, node *corev1.Node) *status.Failure {
	if pod.Spec.NodeName != node.Name {
		return Rejected("NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name")
	}
	return nil
}

// Affinity checks whether the node matches the pod's selector and affinity.
func Affinity(pod *corev1.Pod, _ []*corev1.Pod, node *corev1.Node) *status.Failure {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
		return Rejected("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
	}
	return nil
}

// Taints checks whether the pod tolerates the NoExecute taints. The scheduler checks the others.
func Taints(pod *corev1.Pod, _ []*corev1.Pod, node *corev1.Node) *status.Failure {
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectNoExecute &&
			!scheduling.TolerationsTolerateTaint(klog.Logger{}, pod.Spec.Tolerations, t, false) {
			return Rejected("TaintToleration",
				"Predicate TaintToleration failed: node had taint {%s: %s} that the pod didn't tolerate", t.Key, t.Value)
		}
	}
	return nil
}

// Ports checks whether the pod's host ports are free.
func Ports(pod *corev1.Pod, others []*corev1.Pod, _ *corev1.Node) *status.Failure {
	for _, other := range others {
		for _, have := range hostPorts(other) {
			for _, want := range hostPorts(pod) {
				if clash(have, want) {
					return Rejected("NodePorts",
						"Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports")
				}
			}
		}
	}
	return nil
}

func hostPorts(pod *corev1.Pod) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.HostPort > 0 {
				out = append(out, p)
			}
		}
	}
	return out
}

func clash(a, b corev1.ContainerPort) bool {
	wild := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return a.HostPort == b.HostPort && a.Protocol == b.Protocol &&
		(a.HostIP == b.HostIP || wild(a.HostIP) || wild(b.HostIP))
}

// Resources checks whether the node has enough free resources for the pod's requests.
func Resources(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) *status.Failure {
	if limit := node.Status.Allocatable[corev1.ResourcePods]; int64(len(others)+1) > limit.Value() {
		return Rejected("OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d",
			len(others), limit.Value())
	}
	used := corev1.ResourceList{}
	for _, other := range others {
		amount.Add(used, requests(other))
	}
	for name, want := range requests(pod) {
		have, sum := node.Status.Allocatable[name], used[name]
		left := have.DeepCopy()
		left.Sub(sum)
		if !want.IsZero() && want.Cmp(left) > 0 && !foreign(name, node) {
			return Rejected("OutOf"+string(name), "Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
				name, count(name, want), count(name, sum), count(name, have))
		}
	}
	return nil
}

// requests returns the pod's requests, without extended resources that the devices of a ResourceClaim provide.
func requests(pod *corev1.Pod) corev1.ResourceList {
	all := compresource.PodRequests(pod, compresource.PodResourcesOptions{})
	if st := pod.Status.ExtendedResourceClaimStatus; st != nil {
		for _, m := range st.RequestMappings {
			delete(all, corev1.ResourceName(m.ResourceName))
		}
	}
	return all
}

func count(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// foreign reports whether another component provides the extended resource, so that this node does not count it.
func foreign(name corev1.ResourceName, node *corev1.Node) bool {
	_, counted := node.Status.Allocatable[name]
	return !counted && deviceplugin.Extended(string(name))
}
