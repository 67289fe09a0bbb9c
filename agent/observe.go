package agent

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/logs"
	"monopod/agent/pod/probe"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/agent/runtime"
	"monopod/agent/runtime/inventory"
)

// apply puts an event into what is known. The runtime's own status follows some
// 20 to 70 ms later; there is no need to wait for it.
func (w *worker) apply(ev runtime.Event) {
	if ev.Type == runtime.EventSandboxExited {
		for i := range w.seen.Sandboxes {
			if s := &w.seen.Sandboxes[i]; s.ID == ev.SandboxID {
				s.Ready = false
			}
		}
		return
	}
	c := w.seen.ByID(ev.ContainerID)
	if c == nil {
		return
	}
	switch ev.Type {
	case runtime.EventContainerOOM:
		c.OOM = true
	case runtime.EventContainerExited:
		w.exited(c, ev)
	}
}

// exited records an end. A container that only the event saw start is one whose
// start the step at work has yet to report.
func (w *worker) exited(c *status.Container, ev runtime.Event) {
	if c.State == status.Exited {
		return
	}
	c.Exit(ev.ExitCode, ev.At)
	w.readMessage(c)
}

// readMessage fetches the termination message of a container that ended.
func (w *worker) readMessage(c *status.Container) {
	if c.MessagePath == "" {
		return
	}
	if m := logs.Message(c.MessagePath); m != "" {
		c.Message = m
		return
	}
	if c.MessagePolicy == string(corev1.TerminationMessageFallbackToLogsOnError) && c.ExitCode != 0 {
		w.a.Flushed(w.life, c)
		c.Message = logs.Fallback(w.logPath(c))
	}
}

func (w *worker) logPath(c *status.Container) string {
	return w.a.logs.Path(w.pod, c)
}

// linkLog makes the link to the log of an instance.
func (w *worker) linkLog(id string) {
	if c := w.seen.ByID(id); c != nil {
		w.a.logs.Link(w.pod, c)
	}
}

// unlinkLogs removes the links of a pod that goes.
func (w *worker) unlinkLogs() {
	for i := range w.seen.Containers {
		w.a.logs.Unlink(w.pod, &w.seen.Containers[i])
	}
}

// inventory reads what the runtime has; ended is told of containers that have.
func (a *Agent) inventory(ended func(*status.Container)) inventory.Reader {
	return inventory.Reader{Runtime: a.Runtime, Instance: a.cfg.Instance, Ended: ended}
}

// readContainer is nil where it is gone.
func (w *worker) readContainer(ctx context.Context, id, sandbox string) (*status.Container, error) {
	return w.a.inventory(w.readMessage).Container(ctx, id, sandbox)
}

// look reads the pod anew from the runtime, if that is called for.
func (w *worker) look(ctx context.Context) error {
	if !w.stale {
		w.known = true
		return nil
	}
	next, err := w.a.inventory(w.readMessage).Pod(ctx, w.uid)
	if err != nil {
		return err
	}
	inventory.Reconcile(&next, &w.seen)
	w.seen, w.stale = next, false
	w.adopt(!w.known)
	w.known = true
	return nil
}

// adopt takes over what runs: its events, its probes, and, the first time, its
// volumes, whose sources may have changed while no agent ran.
func (w *worker) adopt(first bool) {
	w.refresh = w.refresh || first && len(w.seen.Containers) > 0
	if first {
		w.holdCgroup()
	}
	for i := range w.seen.Sandboxes {
		w.a.owners.add(w.seen.Sandboxes[i].ID, w.uid)
	}
	for i := range w.seen.Containers {
		c := &w.seen.Containers[i]
		w.a.owners.add(c.ID, w.uid)
		w.believe(c)
		if c.State == status.Running {
			w.a.rotate.Poke()
			w.watch(c, first)
		}
	}
}

// watch starts a container's probes. One adopted is believed to be as ready as it
// was when its status was last stored.
func (w *worker) watch(c *status.Container, adopted bool) {
	s := w.containerSpec(c.Name)
	if s == nil || s.StartupProbe == nil && s.LivenessProbe == nil && s.ReadinessProbe == nil {
		return
	}
	p := probe.Container{Spec: s, Adopted: adopted, Target: probe.Target{ContainerID: c.ID, Host: w.address(), Ports: s.Ports}}
	for _, list := range [][]corev1.ContainerStatus{w.pod.Status.ContainerStatuses, w.pod.Status.InitContainerStatuses} {
		for _, old := range list {
			if old.Name == c.Name && old.ContainerID == "containerd://"+c.ID {
				p.Ready, p.Started = old.Ready, old.Started != nil && *old.Started
			}
		}
	}
	w.probes.Add(w.life, p)
}

// address is where the pod's ports are.
func (w *worker) address() string {
	if w.pod.Spec.HostNetwork {
		return w.a.hostIPs[0]
	}
	if s := w.seen.Sandbox(); s != nil && len(s.IPs) > 0 {
		return s.IPs[0]
	}
	return ""
}

// containerSpec finds a container in the pod's spec.
func (w *worker) containerSpec(name string) *corev1.Container { return spec.Find(w.pod, name) }

// report stores the pod's status if it changed. terminal: nothing runs any more.
func (w *worker) report(terminal bool) {
	if w.gone {
		return
	}
	base := *w.pod
	if w.reported != nil {
		base.Status = *w.reported
		base.Status.Conditions = status.WithForeign(w.reported.Conditions, w.pod.Status.Conditions)
	}
	w.publish()
	next := status.Of(status.Input{
		Pod: &base, Seen: &w.seen, Waiting: w.waiting, Ready: w.probes.Ready, Started: w.probes.Started,
		HostIPs: w.a.hostIPs, Terminal: terminal, Failure: w.failure, Resize: cmp.Or(w.progress, w.deferred), Now: w.a.Clock.Now(),
	})
	w.showDevices(&next)
	if next.Phase == corev1.PodRunning && !w.learned.IsZero() {
		w.a.metrics.podStart.Observe(w.a.Clock.Since(w.learned).Seconds())
		w.learned = time.Time{}
	}
	unseen := w.static && w.reported == nil // its mirror may be yet to come
	switch {
	case unseen, !status.Same(&base.Status, &next):
		w.reported = &next
		w.a.status.Set(w.life, w.pod, &next)
	case status.Same(&w.pod.Status, &next):
		w.reported = &w.pod.Status // one copy is enough
	}
}

func isNotFound(err error) bool { return err != nil && grpcstatus.Code(err) == codes.NotFound }

func isUnavailable(err error) bool { return grpcstatus.Code(err) == codes.Unavailable }
