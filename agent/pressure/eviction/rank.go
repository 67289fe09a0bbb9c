package eviction

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
)

// Usage is a pod's usage, by Signal.Resource. The usage of a missing resource is unknown.
type Usage struct {
	Pod        map[corev1.ResourceName]int64
	Containers map[string]map[corev1.ResourceName]int64 // by name
}

// Rank sorts the pods into the order in which they are evicted for the signal: first those whose usage exceeds their
// requests, then by priority, then by the usage beyond the requests. There are no requests for processes, so pods rank
// by priority and number of processes alone.
func Rank(pods []*corev1.Pod, usage map[types.UID]Usage, signal Signal) {
	name := signal.Resource()
	over := func(p *corev1.Pod) int64 { return usage[p.UID].Pod[name] - request(p, name) }
	exceeds := func(p *corev1.Pod) int {
		if signal != PID && over(p) > 0 {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(exceeds(a), exceeds(b)),
			cmp.Compare(priority(a), priority(b)),
			cmp.Compare(over(b), over(a)),
		)
	})
}

// request returns the pod's request; 0 for inodes and processes.
func request(p *corev1.Pod, name corev1.ResourceName) int64 {
	q := resource.PodRequests(p, resource.PodResourcesOptions{})[name]
	return q.Value()
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}
