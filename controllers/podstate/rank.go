package podstate

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Rank returns pods in the order in which surplus pods are deleted. perNode contains the number of related pods on each
// node. The order is upstream's (ActivePodsWithRanks); pods is not changed.
func Rank(pods []*corev1.Pod, perNode map[string]int, now time.Time) []*corev1.Pod {
	ranked := slices.Clone(pods)
	slices.SortStableFunc(ranked, func(a, b *corev1.Pod) int { return compareVictims(a, b, perNode, now) })
	return ranked
}

// compareVictims is negative if a is deleted before b. The first difference decides.
func compareVictims(a, b *corev1.Pod, perNode map[string]int, now time.Time) int {
	if c := cmp.Or(
		compareBool(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		cmp.Compare(phaseOrder(a), phaseOrder(b)),
		compareBool(Ready(a), Ready(b)),
		cmp.Compare(deletionCost(a), deletionCost(b)),
		cmp.Compare(perNode[b.Spec.NodeName], perNode[a.Spec.NodeName]),
	); c != 0 {
		return c
	}
	if Ready(a) && Ready(b) {
		if c, decided := compareAges(ReadySince(a), ReadySince(b), a, b, now); decided {
			return c
		}
	}
	if c := compareRestarts(a, b); c != 0 {
		return c
	}
	c, _ := compareAges(a.CreationTimestamp.Time, b.CreationTimestamp.Time, a, b, now)
	return c
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// phaseOrder orders pods that have not started before running ones.
func phaseOrder(p *corev1.Pod) int {
	switch p.Status.Phase {
	case corev1.PodPending:
		return 0
	case corev1.PodUnknown:
		return 1
	}
	return 2
}

// deletionCost returns the pod-deletion-cost annotation; 0 if it is missing or not an int32.
func deletionCost(p *corev1.Pod) int32 {
	cost, err := strconv.ParseInt(p.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return int32(cost)
}

// compareAges orders younger pods first. It compares the logarithms of the ages; among pods of similar age the UID
// decides. An unknown time counts as youngest.
func compareAges(a, b time.Time, podA, podB *corev1.Pod, now time.Time) (c int, decided bool) {
	if a.Equal(b) {
		return 0, false
	}
	if a.IsZero() || b.IsZero() {
		return compareBool(!a.IsZero(), !b.IsZero()), true
	}
	return cmp.Or(cmp.Compare(magnitude(now.Sub(a)), magnitude(now.Sub(b))), cmp.Compare(podA.UID, podB.UID)), true
}

// magnitude returns ⌊log₂(age in nanoseconds)⌋; 0 for no age.
func magnitude(age time.Duration) int {
	if age <= 0 {
		return 0
	}
	return int(math.Floor(math.Log2(float64(age))))
}

// compareRestarts orders pods by the restarts of their containers, most first: regular containers, then sidecars.
func compareRestarts(a, b *corev1.Pod) int {
	appA, sideA := maxRestarts(a)
	appB, sideB := maxRestarts(b)
	return cmp.Or(cmp.Compare(appB, appA), cmp.Compare(sideB, sideA))
}

func maxRestarts(p *corev1.Pod) (app, sidecar int32) {
	for _, s := range p.Status.ContainerStatuses {
		app = max(app, s.RestartCount)
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			continue
		}
		for _, s := range p.Status.InitContainerStatuses {
			if s.Name == c.Name {
				sidecar = max(sidecar, s.RestartCount)
			}
		}
	}
	return app, sidecar
}
