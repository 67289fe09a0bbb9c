package scheduler

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"monopod/controllers/nodestate"
)

// filter returns why a pod cannot run on a node, in upstream's words; nothing if it can. It is pure.
type filter func(pod *corev1.Pod, on *nodeState) []string

// filters in order; the first that returns a reason ends the evaluation (upstream's default profile).
func filters() []filter {
	return []filter{unschedulableNode, nodeName, taints, affinity, ports, fits, podAffinity}
}

// objections returns the reasons of the first filter that has any; more run last.
func objections(pod *corev1.Pod, on *nodeState, more ...filter) []string {
	for _, f := range append(filters(), more...) {
		if why := f(pod, on); len(why) > 0 {
			return why
		}
	}
	return nil
}

func unschedulableNode(pod *corev1.Pod, on *nodeState) []string {
	taint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if on.node.Spec.Unschedulable && !tolerates(pod, &taint) {
		return []string{"node(s) were unschedulable"}
	}
	return nil
}

func nodeName(pod *corev1.Pod, on *nodeState) []string {
	if want := pod.Spec.NodeName; want != "" && want != on.node.Name {
		return []string{"node(s) didn't match the requested node name"}
	}
	return nil
}

// taints returns the first taint that forbids scheduling and is not tolerated. A node that is not ready counts
// as tainted, even before nodelifecycle has added the taint.
func taints(pod *corev1.Pod, on *nodeState) []string {
	for _, t := range effectiveTaints(on.node) {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerates(pod, &t) {
			return []string{fmt.Sprintf("node(s) had untolerated taint {%s: %s}", t.Key, t.Value)}
		}
	}
	return nil
}

func effectiveTaints(n *corev1.Node) []corev1.Taint {
	hasTaint := func(key string) bool {
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
	}
	if nodestate.Ready(n) || hasTaint(corev1.TaintNodeNotReady) || hasTaint(corev1.TaintNodeUnreachable) {
		return n.Spec.Taints
	}
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	return append(slices.Clone(n.Spec.Taints), notReady)
}

func tolerates(pod *corev1.Pod, taint *corev1.Taint) bool {
	return scheduling.TolerationsTolerateTaint(klog.Logger{}, pod.Spec.Tolerations, taint, false)
}

func affinity(pod *corev1.Pod, on *nodeState) []string {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(on.node); !ok || err != nil {
		return []string{"node(s) didn't match Pod's node affinity/selector"}
	}
	return nil
}

// hostPort is a host port that a container requests.
type hostPort struct {
	ip       string // 0.0.0.0: all addresses
	protocol corev1.Protocol
	port     int32
}

// hostPorts returns those of containers and sidecars, which run at the same time.
func hostPorts(pod *corev1.Pod) []hostPort {
	var out []hostPort
	containers := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				out = append(out, normalPort(p))
			}
		}
	}
	return out
}

func normalPort(p corev1.ContainerPort) hostPort {
	h := hostPort{ip: p.HostIP, protocol: p.Protocol, port: p.HostPort}
	if h.ip == "" || h.ip == "::" {
		h.ip = "0.0.0.0"
	}
	if h.protocol == "" {
		h.protocol = corev1.ProtocolTCP
	}
	return h
}

func (a hostPort) conflicts(b hostPort) bool {
	return a.port == b.port && a.protocol == b.protocol &&
		(a.ip == b.ip || a.ip == "0.0.0.0" || b.ip == "0.0.0.0")
}

func ports(pod *corev1.Pod, on *nodeState) []string {
	for _, want := range hostPorts(pod) {
		for _, p := range on.pods {
			if slices.ContainsFunc(p.ports, want.conflicts) {
				return []string{"node(s) didn't have free ports for the requested pod ports"}
			}
		}
	}
	return nil
}

// fits returns every resource that is not sufficient on the node.
func fits(pod *corev1.Pod, on *nodeState) []string {
	var why []string
	if int64(len(on.pods))+1 > on.has[corev1.ResourcePods] {
		why = append(why, "Too many pods")
	}
	for name, want := range requests(pod) {
		if want > 0 && want > on.has[name]-on.taken[name] {
			why = append(why, fmt.Sprintf("Insufficient %s", name))
		}
	}
	slices.Sort(why)
	return why
}
