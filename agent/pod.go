package agent

import (
	"context"
	"iter"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/node/stream"
	"monopod/agent/pod/status"
	"monopod/agent/pressure/evictor"
)

// What follows is what other parts see of a worker. It may be used on any goroutine.

var (
	_ evictor.Pod = (*worker)(nil)
	_ stream.Pod  = (*worker)(nil)
)

// Object is the pod as it is now; it is shared.
func (w *worker) Object() *corev1.Pod { return w.current.Load() }

// Seen is what the runtime has of it, to be read only; nil: the worker is yet to look.
func (w *worker) Seen() *status.Observed { return w.snapshot.Load() }

// Changes closes when there is a newer snapshot.
func (w *worker) Changes() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.news
}

// Done closes when nothing is left of the pod, and its worker ends.
func (w *worker) Done() <-chan struct{} { return w.done }

// Wake has the worker look at the pod.
func (w *worker) Wake() { w.wakeUp() }

// Ending says that the pod is being stopped, or has ended.
func (w *worker) Ending() bool { return w.quiet.Load() }

// Over says that nothing of the pod runs any more, or will.
func (w *worker) Over() bool { return w.over.Load() }

// AwaitOver waits until the pod is over; false: limit came first, or the end of ctx.
func (w *worker) AwaitOver(ctx context.Context, limit <-chan time.Time) bool {
	for !w.over.Load() {
		changed := w.Changes()
		if w.over.Load() {
			break
		}
		select {
		case <-ctx.Done():
			return false
		case <-limit:
			return false
		case <-w.done:
			return true
		case <-changed:
		}
	}
	return true
}

// running are the containers that run, as they were last seen.
func (w *worker) running() iter.Seq[*status.Container] {
	return func(yield func(*status.Container) bool) {
		seen := w.snapshot.Load()
		if seen == nil {
			return
		}
		for i := range seen.Containers {
			if c := &seen.Containers[i]; c.State == status.Running && !yield(c) {
				return
			}
		}
	}
}

// Evict ends the pod within grace; false: it is ending already, or was not let in.
func (w *worker) Evict(why *status.Failure, grace time.Duration) bool {
	if w.quiet.Load() || !w.refuse(why, &grace) {
		return false
	}
	pod := w.current.Load()
	w.a.log.Warn("evicting a pod", zap.String("namespace", pod.Namespace), zap.String("pod", pod.Name), zap.String("reason", why.Reason), zap.String("message", why.Message))
	w.a.event(pod, "", corev1.EventTypeWarning, why.Reason, "%s", why.Message)
	return true
}

// refuse has the worker end the pod; false: it has been told to before, and why.
func (w *worker) refuse(why *status.Failure, grace *time.Duration) (first bool) {
	w.update(func(in *inbox) {
		if first = !w.refused; !first {
			return
		}
		w.refused, in.refused, in.hurry = true, why, grace
		if in.interrupt != nil {
			in.interrupt()
		}
	})
	return first
}

// workersOf are those of the pods that are still there.
func (a *Agent) workersOf(pods []evictor.Pod) (out []*worker) {
	for _, p := range pods {
		if w := a.worker(p.Object().UID); w != nil {
			out = append(out, w)
		}
	}
	return out
}

// evictable are all pods.
func (a *Agent) evictable() map[types.UID]evictor.Pod {
	out := map[types.UID]evictor.Pod{}
	for uid, w := range a.all() {
		out[uid] = w
	}
	return out
}
