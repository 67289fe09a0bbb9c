package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Amounts contains quantities of resources: CPU in millicores, all others in whole units. It does not contain the
// number of pods.
type Amounts struct {
	CPU, Memory, Ephemeral int64
	More                   map[corev1.ResourceName]int64 // extended resources and huge pages; may be nil
}

// AmountsOf converts a ResourceList.
func AmountsOf(list corev1.ResourceList) Amounts {
	var a Amounts
	for name, q := range list {
		switch name {
		case corev1.ResourceCPU:
			a.CPU = q.MilliValue()
		case corev1.ResourceMemory:
			a.Memory = q.Value()
		case corev1.ResourceEphemeralStorage:
			a.Ephemeral = q.Value()
		case corev1.ResourcePods:
		default:
			if a.More == nil {
				a.More = map[corev1.ResourceName]int64{}
			}
			a.More[name] = q.Value()
		}
	}
	return a
}

// add adds b, times sign, to a.
func (a *Amounts) add(b *Amounts, sign int64) {
	a.CPU += sign * b.CPU
	a.Memory += sign * b.Memory
	a.Ephemeral += sign * b.Ephemeral
	for name, v := range b.More {
		if a.More == nil {
			a.More = map[corev1.ResourceName]int64{}
		}
		if a.More[name] += sign * v; a.More[name] == 0 {
			delete(a.More, name)
		}
	}
}

// Less reports whether a has less of any resource than b.
func (a *Amounts) Less(b *Amounts) bool {
	if a.CPU < b.CPU || a.Memory < b.Memory || a.Ephemeral < b.Ephemeral {
		return true
	}
	for name, v := range b.More {
		if a.More[name] < v {
			return true
		}
	}
	return false
}

// requests returns a pod's requests: the maximum of the sum of its containers and its largest init container, with
// sidecars and overhead. During a resize it considers the resources in the status if they are higher.
func requests(pod *corev1.Pod) Amounts {
	return AmountsOf(resourcehelper.PodRequests(pod, byStatus(pod)))
}

// byStatus makes PodRequests consider the allocated and actual resources in the status. A status of the whole pod
// exists only for pods with pod-level resources. It includes the overhead, which PodRequests would add again.
func byStatus(pod *corev1.Pod) resourcehelper.PodResourcesOptions {
	return resourcehelper.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: resourcehelper.IsPodLevelResourcesSet(pod)}
}

// requested reports whether all containers request CPU and memory.
func requested(containers []corev1.Container) bool {
	for i := range containers {
		_, cpu := containers[i].Resources.Requests[corev1.ResourceCPU]
		_, memory := containers[i].Resources.Requests[corev1.ResourceMemory]
		if !cpu || !memory {
			return false
		}
	}
	return true
}

// The defaults are the requests that scores assume for a container without its own (upstream DefaultMilliCPURequest,
// DefaultMemoryRequest).
const (
	assumedMilliCPU = 100
	assumedMemory   = 200 << 20
)

// nonZeroRequests returns the CPU and memory requests, with default values for containers without requests.
func nonZeroRequests(pod *corev1.Pod, requests Amounts) Amounts {
	if requested(pod.Spec.Containers) && requested(pod.Spec.InitContainers) {
		return Amounts{CPU: requests.CPU, Memory: requests.Memory}
	}
	options := byStatus(pod)
	options.NonMissingContainerRequests = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(assumedMilliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(assumedMemory, resource.BinarySI),
	}
	return AmountsOf(resourcehelper.PodRequests(pod, options))
}
