package eviction

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	compresource "k8s.io/component-helpers/resource"

	"monopod/agent/podapi/status"
)

// Victims returns the candidates to preempt for a critical pod: as few and of as low priority as possible. It returns
// false if even all candidates are not enough. used are the current requests, including those of the candidates; both
// resources and the number of pods count.
func Victims(pod *corev1.Pod, candidates []*corev1.Pod, used, allocatable corev1.ResourceList) ([]*corev1.Pod, bool) {
	missing := shortage(pod, used, allocatable)
	candidates = slices.Clone(candidates)
	slices.SortStableFunc(candidates, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(priority(a), priority(b)), cmp.Compare(rankOf(a), rankOf(b)))
	})
	var taken []*corev1.Pod
	for _, p := range candidates {
		if len(missing) == 0 {
			break
		}
		if requestsAny(p, missing) {
			taken = append(taken, p)
			missing = subtractRequests(missing, p)
		}
	}
	if len(missing) > 0 {
		return nil, false
	}
	return dropUnneeded(taken, shortage(pod, used, allocatable)), true
}

// rankOf returns the rank of a pod's QoS class: BestEffort first.
func rankOf(p *corev1.Pod) int {
	return slices.Index([]corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed},
		status.QOS(p))
}

// Requests returns a pod's requests, including one pod.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	out := compresource.PodRequests(pod, compresource.PodResourcesOptions{}).DeepCopy()
	if out == nil {
		out = corev1.ResourceList{}
	}
	out[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return out
}

// shortage returns the resources that are missing for the pod to fit.
func shortage(pod *corev1.Pod, used, allocatable corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, want := range Requests(pod) {
		if want.IsZero() {
			continue
		}
		need := want.DeepCopy()
		need.Add(used[name])
		need.Sub(allocatable[name])
		if need.Sign() > 0 {
			out[name] = need
		}
	}
	return out
}

func requestsAny(p *corev1.Pod, missing corev1.ResourceList) bool {
	for name, q := range Requests(p) {
		if _, ok := missing[name]; ok && !q.IsZero() {
			return true
		}
	}
	return false
}

func subtractRequests(missing corev1.ResourceList, p *corev1.Pod) corev1.ResourceList {
	out, asks := corev1.ResourceList{}, Requests(p)
	for name, q := range missing {
		left := q.DeepCopy()
		left.Sub(asks[name])
		if left.Sign() > 0 {
			out[name] = left
		}
	}
	return out
}

// dropUnneeded removes the pods from taken that are not needed, starting with the highest priority.
func dropUnneeded(taken []*corev1.Pod, missing corev1.ResourceList) []*corev1.Pod {
	for i := len(taken) - 1; i >= 0; i-- {
		rest := slices.Delete(slices.Clone(taken), i, i+1)
		left := missing
		for _, p := range rest {
			left = subtractRequests(left, p)
		}
		if len(left) == 0 {
			taken = rest
		}
	}
	return taken
}
