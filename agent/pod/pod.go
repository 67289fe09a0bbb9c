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

	"monopod/agent/images/gc"
	"monopod/agent/pod/containers"
	"monopod/agent/pod/identity"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/resize"
	"monopod/agent/pod/volumes"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/runtime"
	"monopod/apiserver/kit/guard"
)

// Pod is the interface to one pod for the rest of the node. All methods except Run may be called on any goroutine.
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

	current   atomic.Pointer[corev1.Pod] // the desired pod
	allocated atomic.Pointer[corev1.Pod] // with the allocated resources of its containers
	ending    atomic.Bool                // the pod is being stopped, or has ended
	over      atomic.Bool                // no container runs or will run, and the final status is stored
	admitted  atomic.Bool                // the pod was admitted: it holds resources
}

// Options describe a new Pod.
type Options struct {
	Static bool // the pod comes from a file
	Gone   bool // the object no longer exists: Run only cleans up
	Relist bool // the runtime may already have containers of the pod
}

// New returns a pod of the node, whose worker starts with Run. life is the context of the agent.
func New(life context.Context, node *Node, object *corev1.Pod, o Options) *Pod {
	p := &Pod{node: node, inbox: newInbox(), gate: newGate(), done: make(chan struct{})}
	p.id = &identity.Pod{
		UID: object.UID, Object: object, Static: o.Static, Life: life,
		Log: node.Log.With(zap.String("namespace", object.Namespace), zap.String("pod", object.Name),
			zap.String("uid", string(object.UID))),
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

// Run runs the pod until it is gone from the API and from this node, or ctx ends. The caller must call Ended after it.
func (p *Pod) Run(ctx context.Context) { p.worker.run(ctx) }

// Ended records that nothing is left of the pod.
func (p *Pod) Ended() { close(p.done) }

// UID returns the pod's UID.
func (p *Pod) UID() types.UID { return p.id.UID }

// FullName returns namespace/name, which identifies the pod in health checks.
func (p *Pod) FullName() string { return p.id.Object.Namespace + "/" + p.id.Object.Name }

// Static reports whether the pod comes from a file; the API only has its mirror pod.
func (p *Pod) Static() bool { return p.id.Static }

// Log is the pod's logger.
func (p *Pod) Log() *zap.Logger { return p.id.Log }

// Object returns the desired pod; it is shared.
func (p *Pod) Object() *corev1.Pod { return p.current.Load() }

// Allocated returns the pod with its allocated resources; it is shared.
func (p *Pod) Allocated() *corev1.Pod { return p.allocated.Load() }

// Observed returns the pod's observed state in the runtime, which must not be modified; nil: not observed yet.
func (p *Pod) Observed() *status.Observed { return p.observer.Snapshot() }

// Changes returns a channel that is closed when the observed state changes.
func (p *Pod) Changes() <-chan struct{} { return p.observer.Changes() }

// Done returns a channel that is closed when nothing is left of the pod.
func (p *Pod) Done() <-chan struct{} { return p.done }

// Ending reports whether the pod is being stopped, or has ended.
func (p *Pod) Ending() bool { return p.ending.Load() }

// Over reports whether no container of the pod runs or will run.
func (p *Pod) Over() bool { return p.over.Load() }

// Active reports whether the pod holds resources: it was admitted and is not being stopped.
func (p *Pod) Active() bool {
	return p.admitted.Load() && !status.Finished(p.Object().Status.Phase) && !p.Ending()
}

// AwaitOver waits until the pod is over. It returns false if limit fires or ctx ends first.
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

// Running returns the running containers, as last observed.
func (p *Pod) Running() iter.Seq[*status.Container] {
	return func(yield func(*status.Container) bool) {
		seen := p.Observed()
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

// Volumes returns the locations of the pod's volumes, by name; nil until all were mounted.
func (p *Pod) Volumes() map[string]volumes.Location { return p.volumes.Locations() }

// ExecutedHooks returns the number of containers whose executed preStop hook is recorded.
func (p *Pod) ExecutedHooks() int { return p.hooks.Executed() }

// Wake wakes the worker.
func (p *Pod) Wake() { p.inbox.poke() }

// Changed passes a newer version of the pod to the worker. A shorter grace period interrupts the current step.
func (p *Pod) Changed(object *corev1.Pod) {
	old := p.current.Swap(object)
	put := p.inbox.put
	switch {
	case object.DeletionTimestamp != nil && (old.DeletionTimestamp == nil || spec.Grace(object) < spec.Grace(old)):
		put = p.inbox.putUrgent
	case object.Generation == old.Generation && !labelsDiffer(old, object):
		put = p.inbox.putQuietly // only the status has changed, which the worker itself writes
	}
	put(func(n *news) { n.pod = object })
}

// Removed records that the object is gone: the containers must end soon.
func (p *Pod) Removed() { p.inbox.putUrgent(func(n *news) { n.gone = true }) }

// HandleEvent passes an event of the runtime to the worker.
func (p *Pod) HandleEvent(ev runtime.Event) {
	p.inbox.put(func(n *news) { n.events = append(n.events, ev) })
}

// Relist makes the worker read the runtime's state again.
func (p *Pod) Relist() { p.inbox.put(func(n *news) { n.relist = true }) }

// Refresh makes the worker refresh the volumes, because one of their objects has changed.
func (p *Pod) Refresh() { p.inbox.put(func(n *news) { n.refresh = true }) }

// ImagesArrived records that images were imported.
func (p *Pod) ImagesArrived() { p.inbox.put(func(n *news) { n.arrived = true }) }

// Evict ends the pod within grace. It returns false if the pod is already ending, or was not admitted.
func (p *Pod) Evict(why *status.Failure, grace time.Duration) bool {
	if p.Ending() || !p.inbox.fail(why, &grace) {
		return false
	}
	p.node.Log.Warn("evicting a pod", zap.String("namespace", p.id.Object.Namespace), zap.String("pod", p.id.Object.Name),
		zap.String("reason", why.Reason), zap.String("message", why.Message))
	p.id.Warn(why.Reason, "%s", why.Message)
	return true
}

// Garbage returns the pod for garbage collection. It returns false while the worker has not observed the pod, and for a
// deleted pod, whose worker removes everything.
func (p *Pod) Garbage() (gc.Pod, bool) {
	seen := p.Observed()
	return gc.Pod{UID: p.id.UID, Observed: seen, Over: p.Over()}, seen != nil && p.Object().DeletionTimestamp == nil
}

// ContainerRemoved records that a dead container was removed.
func (p *Pod) ContainerRemoved(dead *status.Container) {
	p.node.Containers.Logs.Remove(p.Object(), dead)
	_ = os.Remove(containers.MessagePath(p.volumes.Dir(), dead.Name, dead.Attempt)) // removed with the pod at the latest
	p.SandboxRemoved(dead.ID)
}

// SandboxRemoved records that a dead sandbox was removed.
func (p *Pod) SandboxRemoved(id string) {
	p.observer.Removed(id)
	p.inbox.put(func(n *news) { n.removed = append(n.removed, id) })
}

// Call calls f for the pod, on any goroutine, and reports a panic in it.
func (p *Pod) Call(part string, f func() error) error { return p.id.Call(part, f) }

// panicked logs, counts and reports a panic.
func (p *Pod) panicked(part string, panicked *guard.Panic) {
	p.node.Guard.Caught(part, p.FullName(), panicked)
	p.id.Warn("FailedSync", "Error syncing pod: internal error: %v", panicked)
}
