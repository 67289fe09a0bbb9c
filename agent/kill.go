package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/plan"
	"monopod/agent/pod/probe"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/apiserver/process/guard"
)

// minGrace is what a container always gets after its preStop hook, and what one
// gets whose pod object is already gone (upstream: 2 s and 1 s).
const (
	minAfterHook = 2 * time.Second
	minGone      = time.Second
)

// killSome stops containers that are to start again.
func (w *worker) killSome(ctx context.Context, list []plan.Kill) error {
	for _, k := range list {
		w.a.event(w.pod, k.Container.Name, corev1.EventTypeNormal, "Killing", "%s", k.Message)
		grace := spec.OwnGrace(w.pod)
		if err := w.killOne(ctx, k.Container, w.probeGrace(k.Container, grace)); err != nil {
			return err
		}
		if k.Container.State == status.Unknown {
			return errAlive
		}
	}
	return nil
}

// probeGrace is the grace the probe that condemned a container asks for.
func (w *worker) probeGrace(c *status.Container, grace time.Duration) time.Duration {
	s := w.containerSpec(c.Name)
	kind, failed := w.probes.Failed(c.ID)
	if s == nil || !failed {
		return grace
	}
	p := s.LivenessProbe
	if kind == probe.Startup {
		p = s.StartupProbe
	}
	if p != nil && p.TerminationGracePeriodSeconds != nil {
		return time.Duration(*p.TerminationGracePeriodSeconds) * time.Second
	}
	return grace
}

// kill stops containers within the pod's own grace, all at once.
func (w *worker) kill(ctx context.Context, list []*status.Container, why string) error {
	for _, c := range list {
		w.a.event(w.pod, c.Name, corev1.EventTypeNormal, "Killing", "%s", why)
	}
	return w.killAll(ctx, list, spec.OwnGrace(w.pod))
}

// killAll stops containers at once. Sidecars follow the others, the last first,
// with the grace that is left.
func (w *worker) killAll(ctx context.Context, list []*status.Container, grace time.Duration) error {
	deadline := w.a.Clock.Now().Add(grace)
	var regular, sidecars []*status.Container
	for _, c := range list {
		if slices.ContainsFunc(w.pod.Spec.InitContainers, func(s corev1.Container) bool { return s.Name == c.Name && status.Sidecar(&s) }) {
			sidecars = append(sidecars, c)
		} else {
			regular = append(regular, c)
		}
	}
	if err := w.killGroup(ctx, regular, deadline); err != nil {
		return err
	}
	slices.SortFunc(sidecars, func(a, b *status.Container) int { return b.StartedAt.Compare(a.StartedAt) })
	for _, c := range sidecars {
		if err := w.killGroup(ctx, []*status.Container{c}, deadline); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) killGroup(ctx context.Context, list []*status.Container, deadline time.Time) error {
	errs := make([]error, len(list))
	var all guard.Group
	for i, c := range list {
		all.Do(func() error {
			errs[i] = w.stop(ctx, c, deadline)
			return nil
		})
	}
	errs = append(errs, all.Wait())
	for _, c := range list {
		errs = append(errs, w.ended(ctx, c))
	}
	return errors.Join(errs...)
}

func (w *worker) killOne(ctx context.Context, c *status.Container, grace time.Duration) error {
	return w.killGroup(ctx, []*status.Container{c}, w.a.Clock.Now().Add(grace))
}

// stop runs the preStop hook, once, and stops the container by deadline. It
// touches nothing of the worker that another stop might.
func (w *worker) stop(ctx context.Context, c *status.Container, deadline time.Time) error {
	left := deadline.Sub(w.a.Clock.Now())
	if hook := w.preStop(c); hook != nil && left > 0 {
		if err := cmp.Or(w.runPreStop(ctx, c, hook, left), ctx.Err()); err != nil {
			return err
		}
		left = max(deadline.Sub(w.a.Clock.Now()), minAfterHook)
	}
	err := w.a.Runtime.StopContainer(ctx, c.ID, ceilSeconds(left))
	if isNotFound(err) {
		return nil
	}
	return err
}

// ceilSeconds rounds up to what CRI can say.
func ceilSeconds(d time.Duration) time.Duration {
	return max(0, (d + time.Second - 1).Truncate(time.Second))
}

// ended records how a container ended that was stopped, unless its event has
// told: the events in the inbox come first, they know best.
func (w *worker) ended(ctx context.Context, c *status.Container) error {
	w.takeEvents()
	if c.State == status.Exited || ctx.Err() != nil {
		return ctx.Err()
	}
	now, err := w.readContainer(ctx, c.ID, c.SandboxID)
	if err != nil {
		return err
	}
	if now == nil {
		c.Lose(w.a.Clock.Now())
		return nil
	}
	now.Resources = c.Resources
	*c = *now
	if c.State == status.Running {
		return errAlive
	}
	return nil
}

// errAlive: the runtime says that a container runs which it said it had stopped,
// as containerd 2 does for some seconds when a shim was killed.
var errAlive = errors.New("container still runs after its stop")

// takeEvents applies the events that came during the step.
func (w *worker) takeEvents() {
	w.mu.Lock()
	events := w.in.events
	w.in.events = nil
	w.mu.Unlock()
	for _, ev := range events {
		w.apply(ev)
	}
}
