package agent

import (
	"context"
)

// awaitRoom waits until those are gone who make room for this pod, and has the
// desk let it in then. One that is to end meanwhile waits no longer.
func (w *worker) awaitRoom(ctx context.Context) {
	for _, victim := range w.room {
		for !victim.over.Load() {
			changed := victim.Changes()
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
	w.a.desk.do(func() { w.a.judgeAgain(ctx, w) })
	select {
	case <-ctx.Done():
	case <-w.letIn:
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
	w.entered.Store(false)
	a.tellRefused(pod, f)
	w.refuse(f, nil)
}
