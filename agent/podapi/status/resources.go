package status

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
)

// leastMilliCPU is the request of the smallest cpu.shares, which kubelet does not report.
const leastMilliCPU = 2

// podResources returns what the pod as a whole has in a phase. While the pod runs, that is what its cgroup enforces:
// CPU and memory, and a limit only if every container or the pod itself has one. Kubelet reads it from the cgroup,
// one status later.
func (in *Input) podResources(phase corev1.PodPhase) *corev1.ResourceRequirements {
	old := &in.Pod.Status
	itself := resource.IsPodLevelResourcesSet(in.Pod)
	if r := in.Resize; !itself && r != nil && r.Type == corev1.PodResizeInProgress && old.Resources != nil {
		return old.Resources
	}
	out := &corev1.ResourceRequirements{Requests: Requests(in.Pod),
		Limits: resource.PodLimits(in.Pod, resource.PodResourcesOptions{})}
	if phase == corev1.PodRunning {
		out.Limits = Limits(in.Pod)
		for _, list := range []corev1.ResourceList{out.Requests, out.Limits} {
			maps.DeleteFunc(list, func(name corev1.ResourceName, _ apiresource.Quantity) bool {
				return name != corev1.ResourceCPU && name != corev1.ResourceMemory
			})
		}
		if out.Requests.Cpu().MilliValue() <= leastMilliCPU {
			delete(out.Requests, corev1.ResourceCPU)
		}
	}
	if itself {
		level := cmp.Or(in.PodLevelResources, old.Resources, in.Pod.Spec.Resources)
		maps.Copy(out.Requests, level.Requests)
		maps.Copy(out.Limits, level.Limits)
	}
	return out
}

// Requests returns what a pod requests: the sum of its containers, unless the pod itself requests something.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}

// Limits returns the limits of a pod's cgroup: the sum of its containers, unless the pod itself has limits. CPU and
// memory are not limited if a container has no limit and the pod itself has none.
func Limits(pod *corev1.Pod) corev1.ResourceList {
	limits := resource.PodLimits(pod, resource.PodResourcesOptions{})
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if q := list[i].Resources.Limits[name]; q.IsZero() && !limitsItself(pod, name) {
					delete(limits, name)
				}
			}
		}
	}
	return limits
}

func limitsItself(pod *corev1.Pod, name corev1.ResourceName) bool {
	if pod.Spec.Resources == nil {
		return false
	}
	q := pod.Spec.Resources.Limits[name]
	return !q.IsZero()
}
