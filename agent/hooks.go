package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/probe"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/agent/runtime/cutoff"
)

// postStartLimit bounds a postStart hook that says nothing itself.
const postStartLimit = 10 * time.Minute

// handle runs a lifecycle handler.
func (w *worker) handle(ctx context.Context, h *corev1.LifecycleHandler, c *status.Container, s *corev1.Container, limit time.Duration) error {
	if h.Sleep != nil {
		if !w.a.sleep(ctx, min(time.Duration(h.Sleep.Seconds)*time.Second, limit)) {
			return ctx.Err()
		}
		return nil
	}
	t := probe.Target{ContainerID: c.ID, Host: w.address(), Ports: s.Ports}
	if h.HTTPGet != nil {
		warning, err := w.a.caller.HTTPHook(ctx, h.HTTPGet, t, limit)
		if warning != "" {
			w.a.event(w.pod, s.Name, corev1.EventTypeWarning, "LifecycleHTTPFallback", "%s", warning)
		}
		return err
	}
	_, err := w.a.caller.Do(ctx, &corev1.ProbeHandler{Exec: h.Exec, TCPSocket: h.TCPSocket}, t, limit)
	if err != nil && h.Exec != nil {
		return fmt.Errorf("command %q: %w", strings.Join(h.Exec.Command, " "), err)
	}
	return err
}

// postStart runs the hook; a container whose hook fails is killed and waits as a
// crashed one. The event does not say what the hook printed: it may be secret.
func (w *worker) postStart(ctx context.Context, s *corev1.Container, c *status.Container) error {
	err := w.handle(ctx, s.Lifecycle.PostStart, c, s, postStartLimit)
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if cutoff.Lost(err) {
		return fmt.Errorf("postStart hook: %w", err) // it runs again
	}
	w.a.event(w.pod, s.Name, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	w.a.event(w.pod, s.Name, corev1.EventTypeNormal, "Killing", "FailedPostStartHook")
	delete(w.starting, s.Name)
	if err := w.killOne(ctx, c, spec.OwnGrace(w.pod)); err != nil {
		return err
	}
	return &blocked{retry: time.Millisecond, Waiting: status.Waiting{Reason: "PostStartHookError", Message: fmt.Sprint(err)}}
}

// preStop is the hook of a container that has not run yet.
func (w *worker) preStop(c *status.Container) *corev1.LifecycleHandler {
	s := w.containerSpec(c.Name)
	if s == nil || s.Lifecycle == nil || w.hookRan(c.ID) {
		return nil
	}
	return s.Lifecycle.PreStop
}

// hookRan says whether the hook ran, and that it now does.
func (w *worker) hookRan(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ran := w.hooked[id]
	w.hooked[id] = true
	return ran
}

// runPreStop lets the hook have what is left of the grace. Its failure does not
// keep the container from being stopped; one that the runtime was kept from running
// runs again.
func (w *worker) runPreStop(ctx context.Context, c *status.Container, h *corev1.LifecycleHandler, left time.Duration) error {
	s := w.containerSpec(c.Name)
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	err := w.handle(ctx, h, c, s, left)
	switch {
	case err == nil || ctx.Err() != nil:
	case cutoff.Lost(err):
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.hooked, c.ID)
		return fmt.Errorf("preStop hook: %w", err)
	default:
		w.a.event(w.pod, c.Name, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
	return nil
}
