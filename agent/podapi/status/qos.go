package status

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// QOS returns a pod's QoS class by its requests and limits of CPU and memory: Guaranteed if the limits of every
// container equal its requests, BestEffort if no container sets any, else Burstable. A stored class takes precedence,
// because the class never changes.
func QOS(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	if resource.IsPodLevelResourcesSet(pod) {
		return classOf([]corev1.ResourceRequirements{*pod.Spec.Resources})
	}
	var all []corev1.ResourceRequirements
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			all = append(all, list[i].Resources)
		}
	}
	return classOf(all)
}

func classOf(all []corev1.ResourceRequirements) corev1.PodQOSClass {
	guaranteed, any := true, false
	for _, r := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, request := r.Limits[name], r.Requests[name]
			any = any || !limit.IsZero() || !request.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && (request.IsZero() || limit.Cmp(request) == 0)
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}
