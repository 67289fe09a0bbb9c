// Package observe keeps what the runtime has of one pod. All that is learned, from
// events, from the runtime's answers and from what the pod's worker itself has done,
// is written down here and nowhere else; others read it.
package observe

import (
	"context"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/logs"
	"monopod/agent/pod/env"
	"monopod/agent/pod/identity"
	"monopod/agent/pod/resize"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/agent/runtime"
	"monopod/agent/runtime/inventory"
)

// StartError is what the runtime, and the agent, call the end of a container that could
// not start.
const StartError = "StartError"

// Owners knows whose a sandbox or container is.
type Owners interface {
	Add(id string, pod types.UID)
	// Keep forgets what of the pod's is no more.
	Keep(pod types.UID, exists func(id string) bool)
}

// Node is what the observers of all pods of a node have in common; all is required.
type Node struct {
	Clock   clock.PassiveClock
	Runtime inventory.Reader // without its Ended
	Owners  Owners
	// HostIPs and Allocatable are the node's.
	HostIPs     []string
	Allocatable corev1.ResourceList
	// Flushed waits until the log of a container that ended is whole.
	Flushed func(ctx context.Context, c *status.Container)
	// Log is where the log of an instance lies.
	Log func(pod *corev1.Pod, c *status.Container) string
}

// Observer has what the runtime has of one pod. Snapshot, Changes and Removed may be
// used on any goroutine, all else belongs to the worker's.
type Observer struct {
	node *Node
	id   *identity.Pod
	// pending takes the events that have come and are not applied yet.
	pending func() []runtime.Event

	seen  status.Observed
	stale bool // seen must be read anew
	known bool // seen was right once: what is new in it was not adopted

	snapshot atomic.Pointer[status.Observed] // for readers on other goroutines
	mu       sync.Mutex                      // guards news
	news     chan struct{}                   // closed and replaced with each snapshot
}

// New observes a pod of which nothing is known. pending takes the runtime's events that
// have come and are not applied yet.
func New(node *Node, id *identity.Pod, pending func() []runtime.Event) *Observer {
	return &Observer{node: node, id: id, pending: pending, news: make(chan struct{})}
}

// runtime reads what the runtime has.
func (o *Observer) runtime() inventory.Reader {
	r := o.node.Runtime
	r.Ended = o.readMessage
	return r
}

// Seen is what is known now, to be read only.
func (o *Observer) Seen() *status.Observed { return &o.seen }

// Snapshot is what was known when it was last published, to be read only; nil: the
// worker is yet to look.
func (o *Observer) Snapshot() *status.Observed { return o.snapshot.Load() }

// Changes closes when there is a newer snapshot.
func (o *Observer) Changes() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.news
}

// Publish shows readers what is known now.
func (o *Observer) Publish() {
	o.snapshot.Store(new(o.seen.Clone()))
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.news)
	o.news = make(chan struct{})
}

// Removed takes a container or sandbox that is no more out of the snapshot. The worker
// has to Forget it too.
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

// Doubt has the next Look read everything anew.
func (o *Observer) Doubt() { o.stale = true }

// Look reads the pod anew from the runtime, if that is called for. fresh: it did; first:
// and never had before, so that an agent before this one has made what there is.
func (o *Observer) Look(ctx context.Context) (fresh, first bool, err error) {
	if !o.stale {
		o.known = true
		return false, false, nil
	}
	next, err := o.runtime().Pod(ctx, o.id.UID)
	if err != nil {
		return false, false, err
	}
	inventory.Reconcile(&next, &o.seen)
	first = !o.known
	o.seen, o.stale, o.known = next, false, true
	for i := range o.seen.Sandboxes {
		o.node.Owners.Add(o.seen.Sandboxes[i].ID, o.id.UID)
	}
	for i := range o.seen.Containers {
		o.node.Owners.Add(o.seen.Containers[i].ID, o.id.UID)
	}
	return true, first, nil
}

// Believe takes over what containers have that another agent started: what the stored
// status says, else what the spec gives them.
func (o *Observer) Believe(pod *corev1.Pod) {
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

// Apply puts an event into what is known. The runtime's own status follows some 20 to
// 70 ms later; there is no need to wait for it. A start is not taken from an event: the
// step at work has yet to report it.
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

// readMessage fetches the termination message of a container that ended.
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

// Tidy forgets whose containers and sandboxes were that are no more. exists says of an
// ID that it is not among them.
func (o *Observer) Tidy() (exists func(id string) bool) {
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

// Facts are what field references of the pod may ask for.
func (o *Observer) Facts(pod *corev1.Pod) env.Facts {
	f := env.Facts{Pod: pod, HostIPs: o.node.HostIPs, Allocatable: o.node.Allocatable}
	if pod.Spec.HostNetwork {
		f.PodIPs = f.HostIPs
	} else if s := o.seen.Sandbox(); s != nil {
		f.PodIPs = s.IPs
	}
	return f
}
