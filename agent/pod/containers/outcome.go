package containers

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/observe"
	"monopod/agent/pod/pace"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/runtime"
)

// maxRecreated is the maximum number of times in a row that a container is recreated after an interrupted start.
const maxRecreated = 3

// exitKilled is the exit code of a container that ended by SIGKILL.
const exitKilled = 128 + int32(syscall.SIGKILL)

// pending is a start whose outcome is not known yet.
type pending struct {
	id       string
	reported bool // the event Started was written
}

// isFor reports whether the start of the instance is pending.
func (p *pending) isFor(id string) bool { return p != nil && p.id == id }

// afterStart completes a start: it writes the event, runs the postStart hook and starts the probes.
func (s *Starter) afterStart(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string) error {
	s.Images.Started(c.Name)
	s.Pace.Started(c.Name)
	delete(s.recreated, c.Name)
	if p := s.pending[c.Name]; !p.reported {
		p.reported = true
		s.pod.Event(c.Name, corev1.EventTypeNormal, "Started", "Container started")
		if now := s.Observer.Observed().ByID(id); now != nil {
			s.node.Logs.Link(pod, now)
		}
		s.Observer.Publish()
		s.node.Started(spec.Type(pod, c.Name))
	}
	now := s.Observer.Observed().ByID(id)
	if now == nil || now.State != status.Running {
		delete(s.pending, c.Name)
		s.Wake() // it has already ended
		return nil
	}
	s.node.Placement.Started(ctx, s.pod.UID, now)
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		if err := s.postStart(ctx, pod, c, now); err != nil {
			return err
		}
	}
	delete(s.pending, c.Name)
	s.Probes.Watch(pod, now, false)
	return nil
}

// postStart runs the hook. A container whose hook fails is killed and backs off like a crashed one. The event does not
// contain the hook's output, which may be secret.
func (s *Starter) postStart(ctx context.Context, pod *corev1.Pod, c *corev1.Container, now *status.Container) error {
	err := s.Hooks.PostStart(ctx, pod, c, now.ID)
	switch {
	case err == nil || ctx.Err() != nil:
		return ctx.Err()
	case runtime.Lost(err):
		return fmt.Errorf("postStart hook: %w", err) // the next step runs it again
	}
	s.pod.Event(c.Name, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	s.Stopper.killEvent(now, "FailedPostStartHook")
	delete(s.pending, c.Name)
	if err := s.Stopper.stopOne(ctx, pod, now, spec.OwnGrace(pod)); err != nil {
		return err
	}
	return s.failed(pod, c.Name, time.Millisecond, "PostStartHookError", fmt.Sprint(err))
}

// notStarted handles a failed start. If the start was interrupted, it recreates the container; if an earlier call is in
// progress, it returns the error. Otherwise the container has ended and backs off like a crashed one.
func (s *Starter) notStarted(pod *corev1.Pod, name, id string, startErr error) error {
	now := s.Observer.Observed().ByID(id)
	if !runtime.Lost(startErr) {
		delete(s.pending, name)
	}
	switch {
	case now == nil || s.startInterrupted(pod, now), now.State == status.Created && runtime.Exists(startErr) &&
		s.recreated[name] < maxRecreated:
		if err := s.recreate(name, id); err != nil {
			return err
		}
		return &pace.Blocked{Retry: time.Millisecond} // neither a restart nor a crash
	case s.Pace.Undecided(startErr) && now.State == status.Created:
		return fmt.Errorf("start container: %w", startErr)
	}
	s.Images.Started(name)
	s.Pace.Started(name)
	delete(s.recreated, name)
	s.pod.Event(name, corev1.EventTypeWarning, "Failed", "Error: %v", startErr)
	s.Observer.StartFailed(id, startErr)
	rest, _ := s.crashes.Remaining(name, s.node.Clock.Now(), s.node.Clock.Now())
	return s.failed(pod, name, max(rest, time.Second), "RunContainerError", startErr.Error())
}

// failed counts a failure to start a container. It returns why the container waits, and when it is retried.
func (s *Starter) failed(pod *corev1.Pod, name string, retry time.Duration, reason, message string) *pace.Blocked {
	s.node.Failed(spec.Type(pod, name), reason)
	return &pace.Blocked{Retry: retry, Waiting: status.Waiting{Reason: reason, Message: message}}
}

// Settle handles containers whose start was interrupted: it completes the start of a running one, and recreates an
// unusable one with the same attempt number.
func (s *Starter) Settle(ctx context.Context, pod *corev1.Pod) error {
	seen := s.Observer.Observed()
	for _, c := range slices.Clone(seen.Containers) {
		of := spec.Find(pod, c.Name)
		switch {
		case of == nil || seen.Latest(c.Name).ID != c.ID:
		case s.startInterrupted(pod, &c):
			if err := s.recreate(c.Name, c.ID); err != nil {
				return err
			}
		case s.pending[c.Name].isFor(c.ID) && c.State != status.Created:
			if err := s.Pace.Blocked(c.Name, s.afterStart(ctx, pod, of, c.ID)); err != nil {
				return err
			}
		}
	}
	return nil
}

// startInterrupted reports whether an instance that was never observed running is unusable because the runtime was
// killed while it created or started the instance. A restarted containerd may also adopt a container that had just
// started, and kill it a moment later when it cleans up after the interrupted start.
func (s *Starter) startInterrupted(pod *corev1.Pod, c *status.Container) bool {
	if s.recreated[c.Name] >= maxRecreated {
		return false
	}
	switch c.State {
	case status.Exited:
		p := s.pending[c.Name]
		if c.StartedAt.IsZero() {
			return c.Reason == observe.StartError && (p.isFor(c.ID) || runtime.Recorded(c.Message))
		}
		return p.isFor(c.ID) && !p.reported && c.ExitCode == exitKilled
	case status.Unknown:
		return s.pending[c.Name].isFor(c.ID) || !s.ran(pod, c)
	}
	return false
}

// ran reports whether a container is known to have run.
func (s *Starter) ran(pod *corev1.Pod, c *status.Container) bool {
	stored := s.Stored(pod)
	for _, list := range [][]corev1.ContainerStatus{stored.InitContainerStatuses, stored.ContainerStatuses,
		stored.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].ContainerID == "containerd://"+c.ID {
				return status.Ran(&list[i])
			}
		}
	}
	return false
}

// recreate removes an instance that never ran, so that the next plan creates it again.
func (s *Starter) recreate(name, id string) error {
	s.pod.Log.Info("recreating a container whose start was interrupted", zap.String("container", name),
		zap.String("id", id))
	s.pending[name] = &pending{id: id} // until it is removed
	if err := s.discard(id); err != nil {
		return err
	}
	delete(s.pending, name)
	s.recreated[name]++
	return nil
}
