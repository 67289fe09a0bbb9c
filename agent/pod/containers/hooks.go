package containers

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/probe"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/runtime"
	"monopod/apiserver/kit/backoff"
)

// postStartLimit limits a postStart hook, which has no timeout of its own.
const postStartLimit = 10 * time.Minute

// Hooks runs the lifecycle hooks of one pod's containers. It is safe for concurrent use.
type Hooks struct {
	node     *Node
	pod      *identity.Pod
	observer *observe.Observer

	mu  sync.Mutex      // guards ran
	ran map[string]bool // containers whose preStop hook ran, by ID
}

// NewHooks returns the hooks of a pod.
func NewHooks(node *Node, pod *identity.Pod, o *observe.Observer) *Hooks {
	return &Hooks{node: node, pod: pod, observer: o, ran: map[string]bool{}}
}

// run runs a lifecycle handler.
func (h *Hooks) run(ctx context.Context, handler *corev1.LifecycleHandler, pod *corev1.Pod, id string,
	s *corev1.Container, limit time.Duration) error {
	if handler.Sleep != nil {
		if !backoff.Sleep(ctx, h.node.Clock, min(time.Duration(handler.Sleep.Seconds)*time.Second, limit)) {
			return ctx.Err()
		}
		return nil
	}
	t := probe.Target{ContainerID: id, Host: h.observer.Facts(pod).Address(), Ports: s.Ports}
	if handler.HTTPGet != nil {
		warning, err := h.node.Caller.HTTPHook(ctx, handler.HTTPGet, t, limit)
		if warning != "" {
			h.pod.Event(s.Name, corev1.EventTypeWarning, "LifecycleHTTPFallback", "%s", warning)
		}
		return err
	}
	_, err := h.node.Caller.Do(ctx, &corev1.ProbeHandler{Exec: handler.Exec, TCPSocket: handler.TCPSocket}, t, limit)
	if err != nil && handler.Exec != nil {
		return fmt.Errorf("command %q: %w", strings.Join(handler.Exec.Command, " "), err)
	}
	return err
}

// PostStart runs the postStart hook of a container that was just started.
func (h *Hooks) PostStart(ctx context.Context, pod *corev1.Pod, s *corev1.Container, id string) error {
	return h.run(ctx, s.Lifecycle.PostStart, pod, id, s, postStartLimit)
}

// PreStop runs the preStop hook of a container within the remaining grace period, once; ran reports whether there was a
// hook to run. A failed hook does not prevent the stop. If the runtime was unavailable, the next call runs the hook
// again.
func (h *Hooks) PreStop(ctx context.Context, pod *corev1.Pod, c *status.Container,
	left time.Duration) (ran bool, err error) {
	s := spec.Find(pod, c.Name)
	if s == nil || s.Lifecycle == nil || h.markRun(c.ID) || s.Lifecycle.PreStop == nil || left <= 0 {
		return false, nil
	}
	within, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	err = h.run(within, s.Lifecycle.PreStop, pod, c.ID, s, left)
	switch {
	case err == nil || within.Err() != nil:
	case runtime.Lost(err):
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.ran, c.ID)
		return true, fmt.Errorf("preStop hook: %w", err)
	default:
		h.pod.Event(c.Name, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
	return true, ctx.Err()
}

// markRun records that the hook runs. It reports whether the hook has already run.
func (h *Hooks) markRun(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	ran := h.ran[id]
	h.ran[id] = true
	return ran
}

// ForgetRemoved forgets containers that no longer exist.
func (h *Hooks) ForgetRemoved(exists func(id string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.ran, func(id string, _ bool) bool { return !exists(id) })
}

// Executed returns the number of containers whose executed hook is recorded.
func (h *Hooks) Executed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ran)
}
