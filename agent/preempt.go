package agent

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/eviction"
	"monopod/agent/status"
)

// makeRoom tells pods to go so that pod, a critical one, fits that was refused
// with f for want of resources. False: it cannot be done.
func (e *evictor) makeRoom(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node, f *status.Failure) (victims []*worker, ok bool) {
	resource, ok := strings.CutPrefix(f.Reason, "OutOf")
	if !ok {
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
	lowly, ok := eviction.Victims(pod, candidates, used, node.Status.Allocatable)
	if !ok || len(lowly) == 0 {
		return nil, false
	}
	for _, victim := range lowly {
		w := e.a.worker(victim.UID)
		e.evict(w, eviction.Preempted(), time.Duration(graceOf(victim))*time.Second)
		victims = append(victims, w)
	}
	e.preempted.WithLabelValues(resource).Inc()
	return victims, true
}

// awaitRoom waits until those are gone who make room for this pod, and has the
// loop let it in then. One that is to end meanwhile waits no longer.
func (w *worker) awaitRoom(ctx context.Context) {
	for _, victim := range w.room {
		for !victim.over.Load() {
			changed := victim.changes()
			if victim.over.Load() {
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-victim.done:
			case <-changed:
				continue
			case <-w.wake:
				if w.ending() {
					return
				}
				continue
			}
			break
		}
	}
	if w.room == nil {
		return
	}
	select {
	case <-ctx.Done():
	case w.a.roomy <- w:
		<-w.letIn
	}
}

// ending says whether there is news that the pod is to go.
func (w *worker) ending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.in.gone || w.in.pod != nil && w.in.pod.DeletionTimestamp != nil
}

// judgeAgain lets a pod in for which there is room now, unless it has changed its
// mind or others were faster.
func (a *Agent) judgeAgain(ctx context.Context, w *worker) {
	defer close(w.letIn)
	pod := w.current.Load()
	if pod.DeletionTimestamp != nil {
		return
	}
	f := a.ask(pod, false).refused
	if f == nil {
		f = a.placement.Admit(ctx, pod)
	}
	if f == nil {
		return
	}
	a.tellRefused(pod, f)
	w.update(func(in *inbox) { in.refused = f })
}
