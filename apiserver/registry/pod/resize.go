package pod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// copyResources copies resources by the containers' names. resizeUpdate rejects other containers and another order.
func copyResources(next, sent *corev1.PodSpec) {
	copyContainerResources(next.Containers, sent.Containers)
	copyContainerResources(next.InitContainers, sent.InitContainers)
	next.Resources = sent.Resources
	if !sameNames(next.Containers, sent.Containers) {
		next.Containers = sent.Containers
	}
	if !sameNames(next.InitContainers, sent.InitContainers) {
		next.InitContainers = sent.InitContainers
	}
}

func copyContainerResources(next, sent []corev1.Container) {
	for i := range sent {
		at := slices.IndexFunc(next, func(c corev1.Container) bool { return c.Name == sent[i].Name })
		if at >= 0 {
			next[at].Resources, next[at].ResizePolicy = sent[i].Resources, sent[i].ResizePolicy
		}
	}
}

func sameNames(a, b []corev1.Container) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.Container) bool { return x.Name == y.Name })
}

// resizeUpdate returns the errors of an update, which may only change cpu and memory (upstream:
// validation.ValidatePodResize).
func resizeUpdate(pod, old *corev1.Pod, spec *field.Path) field.ErrorList {
	if errs := resizableErrors(old); len(errs) > 0 {
		return errs
	}
	if !sameNames(pod.Spec.Containers, old.Spec.Containers) {
		return field.ErrorList{field.Forbidden(spec.Child("containers"),
			"containers may not be added, removed, renamed or reordered on resize")}
	}
	if !sameNames(pod.Spec.InitContainers, old.Spec.InitContainers) {
		return field.ErrorList{field.Forbidden(spec.Child("initContainers"),
			"initContainers may not be added, removed, renamed or reordered on resize")}
	}
	errs := Validate(&pod.Spec, spec)
	if is, was := podQOS(&pod.Spec), podQOS(&old.Spec); is != was {
		errs = append(errs, field.Invalid(spec, is, "Pod QOS Class may not change as a result of resizing"))
	}
	errs = append(errs, podLevelResize(pod.Spec.Resources, old.Spec.Resources, spec)...)
	for i := range pod.Spec.Containers {
		at := spec.Child("containers").Index(i).Child("resources")
		errs = append(errs, containerResize(&pod.Spec.Containers[i].Resources, &old.Spec.Containers[i].Resources, at)...)
	}
	return append(errs, initResize(pod.Spec.InitContainers, old.Spec.InitContainers, spec.Child("initContainers"))...)
}

// resizableErrors returns an error for pods that cannot be resized.
func resizableErrors(pod *corev1.Pod) field.ErrorList {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	}
	if pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	return nil
}

// podLevelResize checks a change of the pod-level resources.
func podLevelResize(next, old *corev1.ResourceRequirements, spec *field.Path) field.ErrorList {
	if old == nil && next == nil {
		return nil
	}
	at := spec.Child("resources")
	if next == nil {
		return field.ErrorList{field.Forbidden(at, "pod-level resources cannot be removed")}
	}
	if old == nil {
		old = &corev1.ResourceRequirements{}
	}
	var errs field.ErrorList
	if removed(next.Requests, old.Requests) {
		errs = append(errs, field.Forbidden(at.Child("requests"), "pod-level resource requests cannot be removed"))
	}
	if removed(next.Limits, old.Limits) {
		errs = append(errs, field.Forbidden(at.Child("limits"), "pod-level resource limits cannot be removed"))
	}
	if !equality.Semantic.DeepEqual(unresizableAmounts(next), unresizableAmounts(old)) {
		errs = append(errs, field.Forbidden(spec, "only cpu and memory resources are mutable at pod-level"))
	}
	return errs
}

// initResize rejects a resize of an init container by a restart, because the container would run a second time.
func initResize(next, old []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range next {
		errs = append(errs, containerResize(&next[i].Resources, &old[i].Resources, path.Index(i).Child("resources"))...)
		if !IsSidecar(&old[i]) && !equality.Semantic.DeepEqual(next[i].Resources, old[i].Resources) &&
			slices.ContainsFunc(next[i].ResizePolicy,
				func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer }) {
			errs = append(errs,
				field.Forbidden(path.Index(i),
					"non-sidecar init containers with a resize policy of RestartContainer cannot be resized"))
		}
	}
	return errs
}

func containerResize(next, old *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if removed(next.Requests, old.Requests) {
		errs = append(errs, field.Forbidden(path.Child("requests"), "resource requests cannot be removed"))
	}
	if removed(next.Limits, old.Limits) {
		errs = append(errs, field.Forbidden(path.Child("limits"), "resource limits cannot be removed"))
	}
	if !equality.Semantic.DeepEqual(unresizableAmounts(next), unresizableAmounts(old)) {
		errs = append(errs, field.Forbidden(path, "only cpu and memory resources are mutable"))
	}
	return errs
}

// removed reports whether an update removes cpu or memory.
func removed(next, old corev1.ResourceList) bool {
	for _, name := range resizableResources() {
		_, was := old[name]
		if _, is := next[name]; was && !is {
			return true
		}
	}
	return false
}

// resizableResources returns the resources that a resize can change.
func resizableResources() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// unresizableAmounts returns the amounts that a resize must not change, for comparisons.
func unresizableAmounts(r *corev1.ResourceRequirements) []string {
	var out []string
	for side, list := range map[string]corev1.ResourceList{"limits": r.Limits, "requests": r.Requests} {
		for name, amount := range list {
			if !slices.Contains(resizableResources(), name) {
				out = append(out, fmt.Sprintf("%s %s %s", side, name, amount.String()))
			}
		}
	}
	for _, c := range r.Claims {
		out = append(out, "claim "+c.Name+" "+c.Request)
	}
	slices.Sort(out)
	return out
}
