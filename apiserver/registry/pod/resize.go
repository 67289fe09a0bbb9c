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
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	}
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
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
	for i := range pod.Spec.InitContainers {
		is, was, at := &pod.Spec.InitContainers[i], &old.Spec.InitContainers[i], spec.Child("initContainers").Index(i)
		errs = append(errs, containerResize(&is.Resources, &was.Resources, at.Child("resources"))...)
		// A resize by a restart would run the init container a second time.
		if !IsSidecar(was) && !equality.Semantic.DeepEqual(is.Resources, was.Resources) &&
			slices.ContainsFunc(is.ResizePolicy,
				func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer }) {
			errs = append(errs, field.Forbidden(at,
				"non-sidecar init containers with a resize policy of RestartContainer cannot be resized"))
		}
	}
	return errs
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
