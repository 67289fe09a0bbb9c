package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// podMayChange is upstream's error for a change of an immutable field of a pod's spec.
const podMayChange = "pod updates may not change fields other than " +
	"`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
	"`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// podSpecUpdate rejects changes of immutable fields.
func podSpecUpdate(next, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := sameContainers(next, old, path)
	if len(errs) > 0 {
		return errs
	}
	// The deadline can be set once, and become shorter.
	switch is, was, at := next.ActiveDeadlineSeconds, old.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds"); {
	case was == nil:
	case is == nil:
		errs = append(errs, field.Invalid(at, nil, "must not update from a positive integer to nil value"))
	case *is > *was:
		errs = append(errs, field.Invalid(at, *is, "must be less than or equal to previous value"))
	}
	for _, was := range old.Tolerations {
		if !slices.ContainsFunc(next.Tolerations, func(t corev1.Toleration) bool {
			t.TolerationSeconds = was.TolerationSeconds
			return t == was
		}) {
			errs = append(errs, field.Forbidden(path.Child("tolerations"),
				"existing toleration can not be modified except its tolerationSeconds"))
			break
		}
	}
	for i, gate := range next.SchedulingGates {
		if !slices.Contains(old.SchedulingGates, gate) {
			errs = append(errs, field.Forbidden(path.Child("schedulingGates").Index(i).Child("name"),
				fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name)))
		}
	}
	if len(old.SchedulingGates) > 0 {
		errs = append(errs, gatedUpdate(next, old, path)...)
	}
	if len(errs) > 0 {
		return errs
	}
	munged := mungedSpec(next, old)
	if equality.Semantic.DeepEqual(*munged, *old) {
		return nil
	}
	changed := check.ChangedFields(*munged, *old, equality.Semantic.DeepEqual)
	return field.ErrorList{field.Forbidden(path,
		fmt.Sprintf("%s\nchanged: %s", podMayChange, strings.Join(changed, ", ")))}
}

// mirrorUpdate keeps an update from making a pod a mirror pod, or a mirror pod another pod.
func mirrorUpdate(next, old map[string]string) field.ErrorList {
	path := field.NewPath("metadata", "annotations").Key(corev1.MirrorPodAnnotationKey)
	was, had := old[corev1.MirrorPodAnnotationKey]
	is, has := next[corev1.MirrorPodAnnotationKey]
	switch {
	case had && (!has || is != was):
		return field.ErrorList{field.Forbidden(path, "may not remove or update mirror pod annotation")}
	case has && !had:
		return field.ErrorList{field.Forbidden(path, "may not add mirror pod annotation")}
	}
	return nil
}

func sameContainers(next, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	const message = "pod updates may not add or remove containers"
	var errs field.ErrorList
	if len(next.Containers) != len(old.Containers) {
		errs = append(errs, field.Forbidden(path.Child("containers"), message))
	}
	if len(next.InitContainers) != len(old.InitContainers) {
		errs = append(errs, field.Forbidden(path.Child("initContainers"), message))
	}
	return errs
}

// mungedSpec returns next with old's values in all mutable fields.
func mungedSpec(next, old *corev1.PodSpec) *corev1.PodSpec {
	munged := next.DeepCopy()
	for i := range munged.Containers {
		munged.Containers[i].Image = old.Containers[i].Image
	}
	for i := range munged.InitContainers {
		munged.InitContainers[i].Image = old.InitContainers[i].Image
	}
	munged.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	munged.Tolerations = old.Tolerations
	munged.SchedulingGates = old.SchedulingGates
	if was, is := old.TerminationGracePeriodSeconds, next.TerminationGracePeriodSeconds; was != nil && is != nil &&
		*was < 0 && *is == 1 {
		munged.TerminationGracePeriodSeconds = was
	}
	if len(old.SchedulingGates) > 0 { // gatedUpdate checks these changes
		munged.NodeSelector = old.NodeSelector
		munged.Affinity = withRequiredNodes(munged.Affinity, old.Affinity)
	}
	return munged
}

// gatedUpdate allows an update to restrict the nodes of a pod with scheduling gates further.
func gatedUpdate(next, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(old.NodeSelector)) {
		if v, ok := next.NodeSelector[key]; !ok || v != old.NodeSelector[key] {
			errs = append(errs, field.Invalid(path.Child("nodeSelector"), next.NodeSelector,
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	if !onlyNarrowed(requiredNodes(next.Affinity), requiredNodes(old.Affinity)) {
		at := path.Child("affinity", "nodeAffinity", RequiredTerms, "nodeSelectorTerms")
		errs = append(errs,
			field.Invalid(at, "", "only additions are allowed to each of the existing terms (no mutations or deletions)"))
	}
	return errs
}

func requiredNodes(a *corev1.Affinity) *corev1.NodeSelector {
	if a == nil || a.NodeAffinity == nil {
		return nil
	}
	return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// onlyNarrowed reports whether next has all terms of old, with only added requirements.
func onlyNarrowed(next, old *corev1.NodeSelector) bool {
	if old == nil {
		return true
	}
	if next == nil || len(next.NodeSelectorTerms) != len(old.NodeSelectorTerms) {
		return false
	}
	for i := range old.NodeSelectorTerms {
		is, was := &next.NodeSelectorTerms[i], &old.NodeSelectorTerms[i]
		if !requirementsKept(is.MatchExpressions, was.MatchExpressions) ||
			!requirementsKept(is.MatchFields, was.MatchFields) {
			return false
		}
	}
	return true
}

func requirementsKept(next, old []corev1.NodeSelectorRequirement) bool {
	for _, was := range old {
		if !slices.ContainsFunc(next,
			func(r corev1.NodeSelectorRequirement) bool { return equality.Semantic.DeepEqual(r, was) }) {
			return false
		}
	}
	return true
}

// withRequiredNodes returns a with old's required nodes.
func withRequiredNodes(a, old *corev1.Affinity) *corev1.Affinity {
	if equality.Semantic.DeepEqual(requiredNodes(a), requiredNodes(old)) {
		return a
	}
	back := &corev1.Affinity{}
	if a != nil {
		back = a.DeepCopy()
	}
	if back.NodeAffinity == nil {
		back.NodeAffinity = &corev1.NodeAffinity{}
	}
	back.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = requiredNodes(old)
	if old == nil || old.NodeAffinity == nil {
		if len(back.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
			back.NodeAffinity = nil
		}
		if old == nil && *back == (corev1.Affinity{}) {
			return nil
		}
	}
	return back
}

// podStatusUpdate returns the errors of a status and of its change.
func podStatusUpdate(pod, old *corev1.Pod, path *field.Path) field.ErrorList {
	errs := check.UnsetOrNamed(path.Child("nominatedNodeName"), pod.Status.NominatedNodeName, check.Subdomain)
	errs = append(errs, check.Immutable(path.Child("qosClass"), pod.Status.QOSClass, old.Status.QOSClass)...)
	errs = append(errs, check.NonNegative(path.Child("observedGeneration"), pod.Status.ObservedGeneration)...)
	for i, ip := range pod.Status.PodIPs {
		errs = append(errs, validation.IsValidIP(path.Child("podIPs").Index(i), ip.IP)...)
	}
	for i, ip := range pod.Status.HostIPs {
		errs = append(errs, validation.IsValidIP(path.Child("hostIPs").Index(i).Child("ip"), ip.IP)...)
	}
	if allMayRestart(&pod.Spec) {
		return errs
	}
	restart := pod.Spec.RestartPolicy
	errs = append(errs,
		statesUpdate(pod.Spec.Containers, pod.Status.ContainerStatuses, old.Status.ContainerStatuses, restart,
			path.Child("containerStatuses"))...)
	return append(errs,
		statesUpdate(pod.Spec.InitContainers, pod.Status.InitContainerStatuses, old.Status.InitContainerStatuses, restart,
			path.Child("initContainerStatuses"))...)
}

// allMayRestart reports whether a rule of a container can restart all containers, including those that have ended
// permanently.
func allMayRestart(spec *corev1.PodSpec) bool {
	for c := range Containers(spec) {
		for i := range c.RestartPolicyRules {
			if c.RestartPolicyRules[i].Action == corev1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}

// statesUpdate returns an error if a container runs again after it ended permanently.
func statesUpdate(specs []corev1.Container, next, old []corev1.ContainerStatus, restart corev1.RestartPolicy,
	path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, was := range old {
		if was.State.Terminated == nil || mayRestart(specs, was, restart) {
			continue
		}
		for i, is := range next {
			if is.Name == was.Name && is.State.Terminated == nil {
				errs = append(errs,
					field.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
			}
		}
	}
	return errs
}

// mayRestart reports whether the container may run again, by its own restart policy or by default the pod's.
func mayRestart(specs []corev1.Container, was corev1.ContainerStatus, restart corev1.RestartPolicy) bool {
	for i := range specs {
		if c := &specs[i]; c.Name == was.Name && (c.RestartPolicy != nil || len(c.RestartPolicyRules) > 0) {
			return true
		}
	}
	switch restart {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return was.State.Terminated.ExitCode != 0
	}
	return true
}
