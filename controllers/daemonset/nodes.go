package daemonset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// fits reports whether a DaemonSet should create a pod on a node, and whether an existing pod may stay there. A taint
// without NoExecute only prevents new pods.
func fits(ds *appsv1.DaemonSet, node *corev1.Node) (run, stay bool) {
	spec := &ds.Spec.Template.Spec
	if spec.NodeName != "" && spec.NodeName != node.Name {
		return false, false
	}
	// an invalid affinity matches nothing, as in upstream
	matches, _ := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec}).Match(node)
	if !matches {
		return false, false
	}
	tolerations := tolerations(spec)
	run, stay = true, true
	for _, t := range node.Spec.Taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule ||
			scheduling.TolerationsTolerateTaint(klog.Logger{}, tolerations, &t, false) {
			continue
		}
		run, stay = false, stay && t.Effect != corev1.TaintEffectNoExecute
	}
	return run, stay
}

// tolerations returns the template's tolerations and those that every DaemonSet pod gets, so that it stays on a node in
// any condition (upstream AddOrUpdateDaemonPodTolerations).
func tolerations(spec *corev1.PodSpec) []corev1.Toleration {
	all := slices.Clone(spec.Tolerations)
	add := func(effect corev1.TaintEffect, keys ...string) {
		for _, key := range keys {
			t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
			all = append(slices.DeleteFunc(all, func(has corev1.Toleration) bool { return has.MatchToleration(&t) }), t)
		}
	}
	add(corev1.TaintEffectNoExecute, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
	add(corev1.TaintEffectNoSchedule, corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure,
		corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable)
	if spec.HostNetwork {
		add(corev1.TaintEffectNoSchedule, corev1.TaintNodeNetworkUnavailable)
	}
	return all
}

// pinTo returns a copy of a pod's affinity, which may be nil, that requires one node, to which the scheduler then binds
// the pod.
func pinTo(affinity *corev1.Affinity, node string) *corev1.Affinity {
	next := affinity.DeepCopy()
	if next == nil {
		next = &corev1.Affinity{}
	}
	if next.NodeAffinity == nil {
		next.NodeAffinity = &corev1.NodeAffinity{}
	}
	next.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}},
	}
	return next
}

// nodeOf returns the pod's node or, before it is bound, the node that its affinity requires; empty if there is neither.
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}
