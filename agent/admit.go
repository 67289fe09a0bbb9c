package agent

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	compresource "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"monopod/agent/status"
)

// admitHandler says why a pod cannot run on node beside others; nil: it can.
type admitHandler func(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) *status.Failure

// admitHandlers are asked in this order; the first refusal counts.
func (a *Agent) admitHandlers() []admitHandler {
	return []admitHandler{admitNodeName, a.admitSecurity, admitAffinity, admitTaints, admitPorts, admitResources}
}

// refuse asks the handlers about a pod that is new to this agent. A pod that has
// finished or is being deleted is not refused any more.
func (a *Agent) refuse(ctx context.Context, pod *corev1.Pod) *status.Failure {
	if status.Finished(pod.Status.Phase) || pod.DeletionTimestamp != nil {
		return nil
	}
	critical := a.statics.want[pod.UID] == pod || a.evict.critical(pod)
	pod = allocatedBefore(pod)
	f := a.evict.admit(pod, critical)
	if f == nil {
		f = a.ask(pod, critical)
	}
	if f == nil {
		f = a.placement.Admit(ctx, pod)
	}
	if f != nil {
		a.event(pod, "", corev1.EventTypeWarning, f.Reason, "%s", f.Message)
	}
	return f
}

// ask asks the handlers. A critical pod for which there is no room gets it from
// others.
func (a *Agent) ask(pod *corev1.Pod, critical bool) *status.Failure {
	node, others := a.devices.room(a.node.current()), a.active()
	for _, ask := range a.admit {
		f := ask(pod, others, node)
		if f != nil && critical {
			if rest, ok := a.evict.makeRoom(pod, others, node, f); ok {
				others, f = rest, ask(pod, rest, node)
			}
		}
		if f != nil {
			return f
		}
	}
	return nil
}

// active are the pods that hold resources.
func (a *Agent) active() []*corev1.Pod {
	var out []*corev1.Pod
	for _, w := range a.all() {
		if pod := w.current.Load(); !status.Finished(pod.Status.Phase) && !w.quiet.Load() {
			out = append(out, w.given.Load())
		}
	}
	return out
}

func rejected(reason, format string, args ...any) *status.Failure {
	return &status.Failure{Reason: reason, Message: "Pod was rejected: " + fmt.Sprintf(format, args...)}
}

func admitNodeName(pod *corev1.Pod, _ []*corev1.Pod, node *corev1.Node) *status.Failure {
	if pod.Spec.NodeName != node.Name {
		return rejected("NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name")
	}
	return nil
}

func admitAffinity(pod *corev1.Pod, _ []*corev1.Pod, node *corev1.Node) *status.Failure {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
		return rejected("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
	}
	return nil
}

// admitTaints heeds NoExecute only: others bind the scheduler.
func admitTaints(pod *corev1.Pod, _ []*corev1.Pod, node *corev1.Node) *status.Failure {
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectNoExecute && !slices.ContainsFunc(pod.Spec.Tolerations, func(tol corev1.Toleration) bool {
			return tolerates(&tol, t)
		}) {
			return rejected("TaintToleration", "Predicate TaintToleration failed: node had taint {%s: %s} that the pod didn't tolerate", t.Key, t.Value)
		}
	}
	return nil
}

func tolerates(tol *corev1.Toleration, t *corev1.Taint) bool {
	if tol.Effect != "" && tol.Effect != t.Effect || tol.Key != "" && tol.Key != t.Key {
		return false
	}
	return tol.Operator == corev1.TolerationOpExists || tol.Key != "" && tol.Value == t.Value
}

func admitPorts(pod *corev1.Pod, others []*corev1.Pod, _ *corev1.Node) *status.Failure {
	for _, other := range others {
		for _, have := range hostPorts(other) {
			for _, want := range hostPorts(pod) {
				if clash(have, want) {
					return rejected("NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports")
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
	return a.HostPort == b.HostPort && a.Protocol == b.Protocol && (a.HostIP == b.HostIP || wild(a.HostIP) || wild(b.HostIP))
}

func admitResources(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) *status.Failure {
	if limit := node.Status.Allocatable[corev1.ResourcePods]; int64(len(others)+1) > limit.Value() {
		return rejected("OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", len(others), limit.Value())
	}
	used := corev1.ResourceList{}
	for _, other := range others {
		add(used, compresource.PodRequests(other, compresource.PodResourcesOptions{}))
	}
	for name, want := range compresource.PodRequests(pod, compresource.PodResourcesOptions{}) {
		have, sum := node.Status.Allocatable[name], used[name]
		left := have.DeepCopy()
		left.Sub(sum)
		if !want.IsZero() && want.Cmp(left) > 0 && !foreign(name, node) {
			return rejected("OutOf"+string(name), "Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
				name, amount(name, want), amount(name, sum), amount(name, have))
		}
	}
	return nil
}

func add(sum, more corev1.ResourceList) {
	for name, q := range more {
		have := sum[name]
		have.Add(q)
		sum[name] = have
	}
}

func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}
