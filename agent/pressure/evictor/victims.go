package evictor

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/podapi/amount"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/pressure/eviction"
)

// Walks through folders take at most half a percent of the time (1/walkShare), but happen at least every walkMax.
const (
	walkShare = 200
	walkMax   = 30 * time.Second
)

// evictFirst evicts the first pod by rank and returns it; nil: no pod can be evicted.
func (e *Evictor) evictFirst(ctx context.Context, met eviction.Met) Pod {
	all, pods := e.evictable()
	usage := e.usage(ctx, met.Signal)
	eviction.Rank(pods, usage, met.Signal)
	for _, pod := range pods {
		if !all[pod.UID].Evict(eviction.ThresholdFailure(met, pod, usage[pod.UID]), e.grace(met, pod)) {
			continue
		}
		e.evicted.WithLabelValues(string(met.Signal)).Inc()
		return all[pod.UID]
	}
	return nil
}

func (e *Evictor) grace(met eviction.Met, pod *corev1.Pod) time.Duration {
	if !met.Soft {
		return hardGrace
	}
	return min(e.policy.MaxGrace, spec.Grace(pod))
}

// evictable returns the running pods that may be evicted, oldest first.
func (e *Evictor) evictable() (map[types.UID]Pod, []*corev1.Pod) {
	all := e.Pods()
	var pods []*corev1.Pod
	for _, p := range all {
		pod := p.Object()
		if !status.Finished(pod.Status.Phase) && !p.Ending() && !e.Critical(pod) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(x, y *corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	return all, pods
}

// evictOverLimits evicts the pods that exceed their disk limits.
func (e *Evictor) evictOverLimits(ctx context.Context) (gone []Pod) {
	all, pods := e.evictable()
	limited := map[types.UID]bool{}
	for _, pod := range pods {
		if eviction.Limited(pod) {
			limited[pod.UID] = true
		}
	}
	start := e.Clock.Now()
	if len(limited) == 0 || start.Before(e.nextWalk) {
		return nil
	}
	disks, err := e.Usage.Disks(ctx, func(p *corev1.Pod) bool { return limited[p.UID] })
	if err != nil {
		e.Log.Warn("failed to read the disk usage of pods", zap.Error(err))
		return nil
	}
	e.nextWalk = start.Add(min(walkShare*e.Clock.Since(start), walkMax))
	for _, pod := range pods {
		if f := eviction.Exceeded(pod, eviction.Disk(disks[pod.UID])); f != nil && all[pod.UID].Evict(f, hardGrace) {
			e.evicted.WithLabelValues("ephemeral-storage").Inc()
			gone = append(gone, all[pod.UID])
		}
	}
	return gone
}

// Preempt preempts pods so that a critical pod fits, which was rejected with f for lack of resources. It returns false
// if that is not possible.
func (e *Evictor) Preempt(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node,
	f *status.Failure) (victims []Pod, ok bool) {
	resource, ok := strings.CutPrefix(f.Reason, "OutOf")
	if !ok {
		return nil, false
	}
	used := corev1.ResourceList{}
	var candidates []*corev1.Pod
	for _, other := range others {
		amount.Add(used, eviction.Requests(other))
		if !e.Critical(other) {
			candidates = append(candidates, other)
		}
	}
	chosen, ok := eviction.Victims(pod, candidates, used, node.Status.Allocatable)
	if !ok || len(chosen) == 0 {
		return nil, false
	}
	all := e.Pods()
	for _, victim := range chosen {
		if p := all[victim.UID]; p != nil { // otherwise it has ended already
			p.Evict(eviction.Preempted(), spec.Grace(victim))
			victims = append(victims, p)
		}
	}
	e.preempted.WithLabelValues(resource).Inc()
	return victims, true
}
