package agent

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/eviction"
	"monopod/agent/status"
)

// makeRoom ends pods so that pod, a critical one, fits that was refused with f for
// want of resources; rest are those that stay. False: it cannot be done.
func (e *evictor) makeRoom(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node, f *status.Failure) (rest []*corev1.Pod, ok bool) {
	if !strings.HasPrefix(f.Reason, "OutOf") {
		return nil, false
	}
	used := corev1.ResourceList{}
	var candidates []*corev1.Pod
	for _, other := range others {
		add(used, eviction.Asks(other))
		if !e.critical(other) {
			candidates = append(candidates, other)
		}
	}
	victims, ok := eviction.Victims(pod, candidates, used, node.Status.Allocatable)
	if !ok || len(victims) == 0 {
		return nil, false
	}
	for _, victim := range victims {
		e.evict(e.a.worker(victim.UID), eviction.Preempted(), hardGrace)
	}
	return slices.DeleteFunc(slices.Clone(others), func(p *corev1.Pod) bool { return slices.Contains(victims, p) }), true
}
