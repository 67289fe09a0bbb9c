package agent

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/process/guard"
)

// panicked is the end of a step that panicked. What the worker believes may be half
// changed, so it looks anew, after a pause that grows: 1 s doubled up to 5 min. Only
// that its pod is to go shortens it.
func (w *worker) panicked(p *guard.Panic) {
	w.stale, w.retry = true, min(guard.First<<min(w.panics, 9), guard.Last)
	w.panics++
	w.tellPanic("pod", p)
}

// guarded calls f for the pod, on whatever goroutine, and reports a panic.
func (w *worker) guarded(part string, f func() error) error {
	err := guard.Call(f)
	if p := (*guard.Panic)(nil); errors.As(err, &p) {
		w.tellPanic(part, p)
	}
	return err
}

func (w *worker) tellPanic(part string, p *guard.Panic) {
	w.a.guard.Caught(part, w.name(), p)
	w.a.event(w.current.Load(), "", corev1.EventTypeWarning, "FailedSync", "Error syncing pod: internal error: %v", p)
}

// name is the pod's, as health shows it.
func (w *worker) name() string {
	pod := w.current.Load()
	return pod.Namespace + "/" + pod.Name
}
