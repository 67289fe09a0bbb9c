// Package observe keeps the observed state of one pod in the runtime. The Observer records it from events, from the
// runtime's responses and from the worker's own actions. All other parts only read it.
package observe

import (
	"context"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/logs"
	"monopod/agent/pod/identity"
	"monopod/agent/pod/resize"
	"monopod/agent/podapi/env"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/runtime"
	"monopod/agent/runtime/relist"
)

// StartError is the reason in the status of a container that failed to start.
const StartError = "StartError"

// Owners maps sandboxes and containers to pods.
type Owners interface {
	Add(id string, pod types.UID)
	// Keep removes the pod's IDs that no longer exist.
	Keep(pod types.UID, exists func(id string) bool)
}

// Node contains the dependencies that the observers of all pods of a node share. All are required.
type Node struct {
	Clock       clock.PassiveClock
	Runtime     relist.Reader // its Ended is set for each pod
	Owners      Owners
	HostIPs     func() []string     // of the node
	Allocatable corev1.ResourceList // of the node
	// Flushed waits until the log of a terminated container is complete.
	Flushed func(ctx context.Context, c *status.Container)
	// Log returns the path of an instance's log.
	Log func(pod *corev1.Pod, c *status.Container) string
}

// Observer has the observed state of one pod. Snapshot, Changes and Removed may be called on any goroutine, all
// others only on the worker's.
type Observer struct {
	node    *Node
	id      *identity.Pod
	pending func() []runtime.Event // see New

	seen     status.Observed
	stale    bool // seen must be read again
	observed bool // seen was valid once: new containers in it are not adopted

	snapshot atomic.Pointer[status.Observed] // for readers on other goroutines
	mu       sync.Mutex                      // guards changed
	changed  chan struct{}                   // closed and replaced with each snapshot
}

// New returns an observer without state. pending removes and returns the runtime's events that are not applied yet.
func New(node *Node, id *identity.Pod, pending func() []runtime.Event) *Observer {
	return &Observer{node: node, id: id, pending: pending, changed: make(chan struct{})}
}

// runtime reads the runtime's state.
func (o *Observer) runtime() relist.Reader {
	r := o.node.Runtime
	r.Ended = o.readMessage
	return r
}

// Observed returns the current observed state, which must not be modified.
func (o *Observer) Observed() *status.Observed { return &o.seen }

// Snapshot returns the last published state, which must not be modified; nil: not observed yet.
func (o *Observer) Snapshot() *status.Observed { return o.snapshot.Load() }

// Changes returns a channel that is closed when there is a newer snapshot.
func (o *Observer) Changes() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

// Publish publishes the current state for readers.
func (o *Observer) Publish() {
	o.snapshot.Store(new(o.seen.Clone()))
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
}

// Removed removes a container or sandbox that no longer exists from the snapshot. The worker must also call Forget.
func (o *Observer) Removed(id string) {
	for {
		old := o.snapshot.Load()
		next := old.Clone()
		next.Forget(id)
		if o.snapshot.CompareAndSwap(old, &next) {
			return
		}
	}
}

// MarkStale makes the next Observe read everything again.
func (o *Observer) MarkStale() { o.stale = true }

// Observe reads the pod from the runtime if the state is stale; fresh reports whether it did. first means that it did
// so for the first time: an earlier agent has created the existing sandboxes and containers.
func (o *Observer) Observe(ctx context.Context) (fresh, first bool, err error) {
	if !o.stale {
		o.observed = true
		return false, false, nil
	}
	next, err := o.runtime().Pod(ctx, o.id.UID)
	if err != nil {
		return false, false, err
	}
	relist.Reconcile(&next, &o.seen)
	first = !o.observed
	o.seen, o.stale, o.observed = next, false, true
	for i := range o.seen.Sandboxes {
		o.node.Owners.Add(o.seen.Sandboxes[i].ID, o.id.UID)
	}
	for i := range o.seen.Containers {
		o.node.Owners.Add(o.seen.Containers[i].ID, o.id.UID)
	}
	return true, first, nil
}

// AdoptResources sets the resources of containers that an earlier agent started, from the stored status or the spec.
func (o *Observer) AdoptResources(pod *corev1.Pod) {
	for i := range o.seen.Containers {
		c := &o.seen.Containers[i]
		if c.Resources != nil {
			continue
		}
		if c.Resources = resize.Stored(pod, c.Name, c.ID); c.Resources == nil {
			if s := spec.Find(pod, c.Name); s != nil {
				c.Resources = s.Resources.DeepCopy()
			}
		}
	}
}

// Apply applies an event to the observed state, which need not wait for the runtime's status, some 20 to 70 ms later.
// It ignores the start of a container: the step in progress reports it.
func (o *Observer) Apply(ev runtime.Event) {
	if ev.Type == runtime.EventSandboxExited {
		o.SandboxStopped(ev.SandboxID)
		return
	}
	c := o.seen.ByID(ev.ContainerID)
	if c == nil {
		return
	}
	switch ev.Type {
	case runtime.EventContainerOOM:
		c.OOM = true
	case runtime.EventContainerExited:
		if c.State != status.Exited {
			c.Exit(ev.ExitCode, ev.At)
			o.readMessage(c)
		}
	}
}

// readMessage reads the termination message of a container that ended.
func (o *Observer) readMessage(c *status.Container) {
	if c.MessagePath == "" {
		return
	}
	if m := logs.Message(c.MessagePath); m != "" {
		c.Message = m
		return
	}
	if c.MessagePolicy == string(corev1.TerminationMessageFallbackToLogsOnError) && c.ExitCode != 0 {
		o.node.Flushed(o.id.Life, c)
		c.Message = logs.Fallback(o.node.Log(o.id.Object, c))
	}
}

// ForgetRemovedOwners forgets the owners of containers and sandboxes that no longer exist. It returns a function that
// reports whether an ID exists.
func (o *Observer) ForgetRemovedOwners() (exists func(id string) bool) {
	ids := map[string]bool{}
	for i := range o.seen.Containers {
		ids[o.seen.Containers[i].ID] = true
	}
	for i := range o.seen.Sandboxes {
		ids[o.seen.Sandboxes[i].ID] = true
	}
	exists = func(id string) bool { return ids[id] }
	o.node.Owners.Keep(o.id.UID, exists)
	return exists
}

// Facts returns the values of the pod's field references.
func (o *Observer) Facts(pod *corev1.Pod) env.Facts {
	f := env.Facts{Pod: pod, HostIPs: o.node.HostIPs(), Allocatable: o.node.Allocatable}
	if pod.Spec.HostNetwork {
		f.PodIPs = f.HostIPs
	} else if s := o.seen.Sandbox(); s != nil {
		f.PodIPs = status.PodIPs(s.IPs, f.HostIPs)
	}
	return f
}
