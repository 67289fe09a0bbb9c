package agent

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	compresource "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"monopod/agent/amount"
	"monopod/agent/evictor"
	"monopod/agent/status"
)

// admitHandler says why a pod cannot run on node beside others; nil: it can.
type admitHandler func(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) *status.Failure

// admitHandlers are asked in this order; the first refusal counts.
func (a *Agent) admitHandlers() []admitHandler {
	return []admitHandler{admitNodeName, a.admitSecurity, admitAffinity, admitTaints, admitPorts, admitResources}
}

// verdict is what becomes of a pod that is new to this agent: it is refused, comes
// in, or does so once others that make room for it are gone.
type verdict struct {
	refused *status.Failure
	room    []*worker
}

// judge asks the handlers about a pod that is new to this agent. A pod that has
// finished or is being deleted is not refused any more.
func (a *Agent) judge(ctx context.Context, pod *corev1.Pod) (v verdict) {
	if status.Finished(pod.Status.Phase) || pod.DeletionTimestamp != nil {
		return verdict{}
	}
	critical := a.statics.want[pod.UID] == pod || a.evict.Critical(pod)
	pod = allocatedBefore(pod)
	if v.refused = a.drain.refuse(); v.refused == nil {
		if f := a.evict.Admit(pod, critical); f != nil {
			v.refused = rejected(f.Reason, "%s", f.Message)
		}
	}
	if v.refused == nil {
		v = a.ask(pod, critical)
	}
	if v.refused == nil && len(v.room) == 0 { // else it is asked when there is room
		v.refused = a.placement.Admit(ctx, pod)
	}
	a.tellRefused(pod, v.refused)
	return v
}

func (a *Agent) tellRefused(pod *corev1.Pod, f *status.Failure) {
	if f != nil {
		a.event(pod, "", corev1.EventTypeWarning, f.Reason, "%s", f.Message)
	}
}

// ask asks the handlers. A critical pod for which there is no room gets it from
// others, who are told to go.
func (a *Agent) ask(pod *corev1.Pod, critical bool) (v verdict) {
	node, others := a.devices.room(a.node.Current()), a.activeBeside(pod)
	for _, ask := range a.admit {
		v.refused = ask(pod, others, node)
		if v.refused != nil && critical {
			if victims, ok := a.evict.MakeRoom(pod, others, node, v.refused); ok {
				v.room = append(v.room, a.workersOf(victims)...)
				others = slices.DeleteFunc(others, func(p *corev1.Pod) bool {
					return slices.ContainsFunc(victims, func(v evictor.Pod) bool { return v.Object().UID == p.UID })
				})
				v.refused = ask(pod, others, node)
			}
		}
		if v.refused != nil {
			return v
		}
	}
	return v
}

// activeBeside are the pods that hold resources, but for pod itself.
func (a *Agent) activeBeside(pod *corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(a.active(), func(p *corev1.Pod) bool { return p.UID == pod.UID })
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
		amount.Add(used, compresource.PodRequests(other, compresource.PodResourcesOptions{}))
	}
	for name, want := range compresource.PodRequests(pod, compresource.PodResourcesOptions{}) {
		have, sum := node.Status.Allocatable[name], used[name]
		left := have.DeepCopy()
		left.Sub(sum)
		if !want.IsZero() && want.Cmp(left) > 0 && !foreign(name, node) {
			return rejected("OutOf"+string(name), "Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
				name, count(name, want), count(name, sum), count(name, have))
		}
	}
	return nil
}

func count(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}
