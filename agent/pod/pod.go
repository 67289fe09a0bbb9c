package pod

import (
	"context"
	"iter"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/images/garbage"
	"monopod/agent/pod/containers"
	"monopod/agent/pod/identity"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/resize"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/agent/pod/volumes"
	"monopod/agent/runtime"
	"monopod/apiserver/process/guard"
)

// Pod is one pod as the rest of the node sees it. All its methods but Run may be used on
// any goroutine.
type Pod struct {
	node   *Node
	id     *identity.Pod
	inbox  *inbox
	gate   gate
	done   chan struct{} // closed when nothing is left of the pod
	worker *worker

	observer *observe.Observer
	volumes  *volumes.Volumes
	hooks    *containers.Hooks

	current   atomic.Pointer[corev1.Pod] // as it is asked for
	allocated atomic.Pointer[corev1.Pod] // with the resources that its containers are given
	ending    atomic.Bool                // it is being stopped, or has ended
	over      atomic.Bool                // nothing of it starts again, its status is stored
	admitted  atomic.Bool                // it was let in: it holds resources
}

// Options say how a pod comes to the node.
type Options struct {
	Static bool // it comes from a file
	Gone   bool // only the rest of it is to end: there is no such object any more
	Relist bool // the runtime may have something of it
}

// New is a pod of the node; Run makes it what it should be until life ends, or the pod.
func New(life context.Context, node *Node, object *corev1.Pod, o Options) *Pod {
	p := &Pod{node: node, inbox: newInbox(), gate: newGate(), done: make(chan struct{})}
	p.id = &identity.Pod{
		UID: object.UID, Object: object, Static: o.Static, Life: life,
		Log: node.Log.With(zap.String("namespace", object.Namespace), zap.String("pod", object.Name), zap.String("uid", string(object.UID))),
		Event: func(container, eventType, reason, format string, args ...any) {
			node.Hooks.Event(p.current.Load(), container, eventType, reason, format, args...)
		},
		Panicked: p.panicked,
	}
	p.inbox.news.gone, p.inbox.news.relist = o.Gone, o.Relist
	p.current.Store(object)
	p.allocated.Store(resize.Allocated(object))
	p.worker = newWorker(p)
	p.observer, p.volumes, p.hooks = p.worker.observer, p.worker.volumes, p.worker.hooks
	return p
}

// Run works until the pod is gone from the API and from this node, or ctx ends. Ended
// must be called then.
func (p *Pod) Run(ctx context.Context) { p.worker.run(ctx) }

// Ended says that nothing is left of the pod.
func (p *Pod) Ended() { close(p.done) }

// UID is the pod's.
func (p *Pod) UID() types.UID { return p.id.UID }

// FullName is the pod's namespace and name, as health shows them.
func (p *Pod) FullName() string { return p.id.Object.Namespace + "/" + p.id.Object.Name }

// Static says that the pod comes from a file; the API has only its mirror.
func (p *Pod) Static() bool { return p.id.Static }

// Log is about the pod.
func (p *Pod) Log() *zap.Logger { return p.id.Log }

// Object is the pod as it is asked for now; it is shared.
func (p *Pod) Object() *corev1.Pod { return p.current.Load() }

// Allocated is the pod with the resources that it was given; it is shared.
func (p *Pod) Allocated() *corev1.Pod { return p.allocated.Load() }

// Seen is what the runtime has of it, to be read only; nil: the worker is yet to look.
func (p *Pod) Seen() *status.Observed { return p.observer.Snapshot() }

// Changes closes when there is more to see than before it was called.
func (p *Pod) Changes() <-chan struct{} { return p.observer.Changes() }

// Done closes when nothing is left of the pod.
func (p *Pod) Done() <-chan struct{} { return p.done }

// Ending says that the pod is being stopped, or has ended.
func (p *Pod) Ending() bool { return p.ending.Load() }

// Over says that nothing of the pod runs any more, or will.
func (p *Pod) Over() bool { return p.over.Load() }

// Active says that the pod holds resources: it was let in and is not being stopped.
func (p *Pod) Active() bool {
	return p.admitted.Load() && !status.Finished(p.Object().Status.Phase) && !p.Ending()
}

// AwaitOver waits until the pod is over; false: limit came first, or the end of ctx.
func (p *Pod) AwaitOver(ctx context.Context, limit <-chan time.Time) bool {
	for !p.Over() {
		changed := p.Changes()
		if p.Over() {
			break
		}
		select {
		case <-ctx.Done():
			return false
		case <-limit:
			return false
		case <-p.done:
			return true
		case <-changed:
		}
	}
	return true
}

// Running are the containers that run, as they were last seen.
func (p *Pod) Running() iter.Seq[*status.Container] {
	return func(yield func(*status.Container) bool) {
		seen := p.Seen()
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

// Volumes are where the pod's volumes lie, by name; nil: they were never all there.
func (p *Pod) Volumes() map[string]volumes.Place { return p.volumes.Places() }

// Remembered is of how many containers it is remembered that their preStop hook ran.
func (p *Pod) Remembered() int { return p.hooks.Remembered() }

// Wake has the worker look at the pod.
func (p *Pod) Wake() { p.inbox.poke() }

// Changed brings a newer version of the pod. One that asks for a faster end than before
// interrupts what the worker waits for.
func (p *Pod) Changed(object *corev1.Pod) {
	old := p.current.Swap(object)
	put := p.inbox.put
	switch {
	case object.DeletionTimestamp != nil && (old.DeletionTimestamp == nil || spec.Grace(object) < spec.Grace(old)):
		put = p.inbox.urgent
	case object.Generation == old.Generation && !relabeled(old, object): // only the status, which the worker itself writes
		put = p.inbox.later
	}
	put(func(n *news) { n.pod = object })
}

// Removed says that the object is gone: whatever still runs must end soon.
func (p *Pod) Removed() { p.inbox.urgent(func(n *news) { n.gone = true }) }

// Happened brings an event of the runtime.
func (p *Pod) Happened(ev runtime.Event) {
	p.inbox.put(func(n *news) { n.events = append(n.events, ev) })
}

// Relist says that what the runtime has must be looked at anew.
func (p *Pod) Relist() { p.inbox.put(func(n *news) { n.relist = true }) }

// Refresh says that something changed that volumes of the pod show or wait for.
func (p *Pod) Refresh() { p.inbox.put(func(n *news) { n.refresh = true }) }

// ImagesArrived says that images came that nobody pulled.
func (p *Pod) ImagesArrived() { p.inbox.put(func(n *news) { n.arrived = true }) }

// Evict ends the pod within grace; false: it is ending already, or was not let in.
func (p *Pod) Evict(why *status.Failure, grace time.Duration) bool {
	if p.Ending() || !p.inbox.fail(why, &grace) {
		return false
	}
	p.node.Log.Warn("evicting a pod", zap.String("namespace", p.id.Object.Namespace), zap.String("pod", p.id.Object.Name), zap.String("reason", why.Reason), zap.String("message", why.Message))
	p.id.Warn(why.Reason, "%s", why.Message)
	return true
}

// Garbage is what the collector may look at; false: nothing, because the worker is yet to
// look itself, or because the pod is deleted: it removes all of it then.
func (p *Pod) Garbage() (garbage.Pod, bool) {
	seen := p.Seen()
	return garbage.Pod{UID: p.id.UID, Seen: seen, Over: p.Over()}, seen != nil && p.Object().DeletionTimestamp == nil
}

// ContainerRemoved says that a dead container is no more.
func (p *Pod) ContainerRemoved(dead *status.Container) {
	p.node.Containers.Logs.Remove(p.Object(), dead)
	_ = os.Remove(containers.MessagePath(p.volumes.Dir(), dead.Name, dead.Attempt)) // goes with the pod at the latest
	p.SandboxRemoved(dead.ID)
}

// SandboxRemoved says that a dead sandbox is no more.
func (p *Pod) SandboxRemoved(id string) {
	p.observer.Removed(id)
	p.inbox.put(func(n *news) { n.removed = append(n.removed, id) })
}

// Call calls f for the pod, on whatever goroutine, and reports a panic in it.
func (p *Pod) Call(part string, f func() error) error { return p.id.Call(part, f) }

// panicked logs, counts and shows a panic.
func (p *Pod) panicked(part string, panicked *guard.Panic) {
	p.node.Guard.Caught(part, p.FullName(), panicked)
	p.id.Warn("FailedSync", "Error syncing pod: internal error: %v", panicked)
}
