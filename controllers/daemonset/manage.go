package daemonset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/controllers/podstate"
)

// plan contains the pods to create and to delete.
type plan struct {
	create []string      // names of nodes
	delete []*corev1.Pod // surplus, outdated, or finished
	failed []*corev1.Pod // to delete after a backoff
}

func (p plan) empty() bool { return len(p.create)+len(p.delete)+len(p.failed) == 0 }

// plan returns the next step towards the desired state. A rolling update continues only if no pod is missing, surplus
// or finished.
func (st *syncState) plan() plan {
	p := st.manage()
	if !p.empty() || st.ds.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return p
	}
	unavailable, surge := st.limits()
	if surge == 0 {
		return st.rollInPlace(unavailable)
	}
	return st.rollAhead(surge)
}

// manage finds nodes without a pod, and pods that should not exist, regardless of their template.
func (st *syncState) manage() plan {
	var p plan
	known := map[string]bool{}
	for _, node := range st.nodes {
		known[node.Name] = true
		st.manageNode(&p, node)
	}
	for node, on := range st.pods {
		if known[node] {
			continue
		}
		for _, pod := range on { // podgc deletes the bound pods of deleted nodes
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
				p.delete = append(p.delete, pod)
			}
		}
	}
	return p
}

func (st *syncState) manageNode(p *plan, node *corev1.Node) {
	on := st.pods[node.Name]
	run, stay := fits(st.ds, node)
	switch {
	case run && len(on) == 0:
		p.create = append(p.create, node.Name)
		return
	case !stay:
		p.delete = append(p.delete,
			slices.DeleteFunc(slices.Clone(on), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })...)
		return
	}
	var active []*corev1.Pod
	for _, pod := range on {
		switch {
		case pod.DeletionTimestamp != nil:
		case pod.Status.Phase == corev1.PodFailed:
			p.failed = append(p.failed, pod)
		case pod.Status.Phase == corev1.PodSucceeded:
			p.delete = append(p.delete, pod)
		default:
			active = append(active, pod)
		}
	}
	switch {
	case st.surges() && len(active) == 0 && run:
		p.create = append(p.create, node.Name) // the replacement does not wait for the terminating pod
	case len(active) <= 1:
	case st.surges():
		p.delete = append(p.delete, st.surplus(active)...)
	default:
		p.delete = append(p.delete, active[1:]...)
	}
}

// surplus returns the pods to delete from a node with several. During a rolling update with surge, an old and a new pod
// may coexist as long as only the old one is available.
func (st *syncState) surplus(active []*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	var is, was *corev1.Pod
	for _, pod := range active {
		switch {
		case st.updated(pod) && is == nil:
			is = pod
		case !st.updated(pod) && was == nil:
			was = pod
		default:
			out = append(out, pod)
		}
	}
	if is != nil && was != nil && (!podstate.Ready(was) || st.available(is)) {
		out = append(out, was)
	}
	return out
}
