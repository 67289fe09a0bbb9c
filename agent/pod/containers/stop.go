package containers

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/plan"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/apiserver/kit/guard"
)

// minAfterHook is the minimum grace period after a preStop hook (upstream's).
const minAfterHook = 2 * time.Second

// Stopper stops the containers of one pod. It has no state: the Observer records the results.
type Stopper struct {
	node     *Node
	pod      *identity.Pod
	observer *observe.Observer
	hooks    *Hooks
	probes   *Probes
	probed   func()
}

// NewStopper returns the Stopper of a pod. It calls probed, on the caller's goroutine, when the result of a probe changes
// while containers stop, which may take as long as the grace period.
func NewStopper(node *Node, pod *identity.Pod, o *observe.Observer, hooks *Hooks, probes *Probes,
	probed func()) *Stopper {
	return &Stopper{node: node, pod: pod, observer: o, hooks: hooks, probes: probes, probed: probed}
}

// StopToRestart stops containers that will restart, one after the other, within the grace period of the failed probe or
// of the pod. It stores the reason as the message of a container without a termination message: Events are dropped when
// there are many, and a program that exits with code 0 on SIGTERM looks as if it had completed.
func (s *Stopper) StopToRestart(ctx context.Context, pod *corev1.Pod, list []plan.Kill) error {
	for _, k := range list {
		s.killEvent(k.Container, k.Message)
		grace := s.probes.Grace(pod, k.Container, spec.OwnGrace(pod))
		if err := s.stopOne(ctx, pod, k.Container, grace); err != nil {
			return err
		}
		if k.Container.State == status.Unknown {
			return observe.ErrAlive
		}
		s.observer.SetMessage(k.Container.ID, k.Message)
	}
	return nil
}

// KillNow stops containers without hooks and grace period, and stores reason and message in their statuses.
func (s *Stopper) KillNow(ctx context.Context, pod *corev1.Pod, list []plan.Kill, reason, message string) error {
	var all []*status.Container
	for _, k := range list {
		s.killEvent(k.Container, k.Message)
		all = append(all, k.Container)
	}
	if err := s.stopGroup(ctx, pod, all, s.node.Clock.Now()); err != nil {
		return err
	}
	for _, c := range all {
		s.observer.SetReason(c.ID, reason, message)
	}
	return nil
}

// StopRunning stops the running containers like StopWithin, within the grace period of the pod's spec.
func (s *Stopper) StopRunning(ctx context.Context, pod *corev1.Pod, why string) error {
	for _, c := range s.observer.Observed().Alive() {
		s.killEvent(c, why)
	}
	return s.StopWithin(ctx, pod, spec.OwnGrace(pod))
}

func (s *Stopper) killEvent(c *status.Container, why string) {
	s.pod.Event(c.Name, corev1.EventTypeNormal, "Killing", "%s", why)
}

// StopWithin stops the running containers concurrently within grace, and then the sidecars in reverse order within the
// rest of it.
func (s *Stopper) StopWithin(ctx context.Context, pod *corev1.Pod, grace time.Duration) error {
	deadline := s.node.Clock.Now().Add(grace)
	var regular, sidecars []*status.Container
	for _, c := range s.observer.Observed().Alive() {
		if slices.ContainsFunc(pod.Spec.InitContainers,
			func(s corev1.Container) bool { return s.Name == c.Name && status.Sidecar(&s) }) {
			sidecars = append(sidecars, c)
		} else {
			regular = append(regular, c)
		}
	}
	if err := s.stopGroup(ctx, pod, regular, deadline); err != nil {
		return err
	}
	slices.SortFunc(sidecars, func(a, b *status.Container) int { return b.StartedAt.Compare(a.StartedAt) })
	for _, c := range sidecars {
		if err := s.stopGroup(ctx, pod, []*status.Container{c}, deadline); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stopper) stopOne(ctx context.Context, pod *corev1.Pod, c *status.Container, grace time.Duration) error {
	return s.stopGroup(ctx, pod, []*status.Container{c}, s.node.Clock.Now().Add(grace))
}

// stopGroup stops containers concurrently and records how they ended.
func (s *Stopper) stopGroup(ctx context.Context, pod *corev1.Pod, list []*status.Container, deadline time.Time) error {
	errs := make([]error, len(list))
	var all guard.Group
	for i, c := range list {
		all.Do(func() error {
			errs[i] = s.stop(ctx, pod, c, deadline)
			return nil
		})
	}
	errs = append(errs, s.await(guard.Spawn(all.Wait)))
	for _, c := range list {
		errs = append(errs, s.observer.Stopped(ctx, c.ID))
	}
	return errors.Join(errs...)
}

// await returns the result of over, and calls probed meanwhile.
func (s *Stopper) await(over <-chan error) error {
	for {
		select {
		case err := <-over:
			return err
		case <-s.probes.changed:
			s.probed()
		}
	}
}

// stop runs the preStop hook once, and stops the container by deadline.
func (s *Stopper) stop(ctx context.Context, pod *corev1.Pod, c *status.Container, deadline time.Time) error {
	left := deadline.Sub(s.node.Clock.Now())
	hooked, err := s.hooks.PreStop(ctx, pod, c, left)
	if err != nil {
		return err
	}
	if hooked {
		left = max(deadline.Sub(s.node.Clock.Now()), minAfterHook)
	}
	err = s.node.Runtime.StopContainer(ctx, c.ID, ceilSeconds(left))
	if identity.NotFound(err) {
		return nil
	}
	return err
}

// ceilSeconds rounds up to whole seconds, CRI's unit.
func ceilSeconds(d time.Duration) time.Duration {
	return max(0, (d + time.Second - 1).Truncate(time.Second))
}
