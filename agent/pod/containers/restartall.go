package containers

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/pace"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
)

// Upstream's reason and message of containers that end or wait because of RestartAllContainers.
const (
	RestartingAll        = "RestartingAllContainers"
	RestartingAllMessage = "The container is removed because RestartAllContainers in place"
)

// MayRestartAll reports whether all containers may restart now, because the backoff of trigger is over. Until then the
// containers' statuses contain the reason RestartingAll.
func (s *Starter) MayRestartAll(pod *corev1.Pod, trigger *status.Container) bool {
	for _, c := range s.regular(pod) {
		s.Pace.Wait(c.Name, status.Waiting{Reason: RestartingAll, Message: RestartingAllMessage})
	}
	b := &pace.Blocked{}
	if errors.As(s.backOff(pod, trigger.Name, trigger), &b) {
		_ = s.Pace.Blocked(trigger.Name, b)
		return false
	}
	s.recordRestart(trigger.Name, trigger.FinishedAt)
	return true
}

// RemoveAll removes all containers, so that they are created again. It removes the trigger last: while the trigger
// exists, an agent that restarts continues the removal.
func (s *Starter) RemoveAll(ctx context.Context, pod *corev1.Pod, trigger string) error {
	var last []status.Container
	for _, c := range s.regular(pod) {
		if c.ID == trigger {
			last = append(last, c)
		} else if err := s.remove(ctx, pod, &c); err != nil {
			return err
		}
	}
	for _, c := range last {
		if err := s.remove(ctx, pod, &c); err != nil {
			return err
		}
	}
	return nil
}

// regular returns the current instances of all containers except ephemeral ones.
func (s *Starter) regular(pod *corev1.Pod) []status.Container {
	var out []status.Container
	for _, c := range spec.Containers(&pod.Spec) {
		for _, instance := range s.Observer.Observed().Named(c.Name) {
			out = append(out, *instance)
		}
	}
	return out
}

// remove removes a terminated instance, with its log and message.
func (s *Starter) remove(ctx context.Context, pod *corev1.Pod, c *status.Container) error {
	if err := s.node.Runtime.RemoveContainer(ctx, c.ID); err != nil && !identity.NotFound(err) {
		return fmt.Errorf("remove container to restart all: %w", err)
	}
	s.node.Logs.Remove(pod, c)
	_ = os.Remove(s.maker.messagePath(c.Name, c.Attempt)) // removed with the pod at the latest
	s.Observer.Forget(c.ID)
	return nil
}
