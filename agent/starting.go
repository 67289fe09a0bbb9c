package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/status"
	"monopod/agent/runtime/cutoff"
)

// startError is what the runtime, and the agent, call the end of a container that
// could not start.
const startError = "StartError"

// remade bounds how often in a row a container is made anew whose start was cut off.
const remade = 3

// patient is how many failed steps in a row may have gone before a name that stays
// in use is called an error.
const patient = 5

// start is one that was asked for and whose outcome is to be found out.
type start struct {
	id   string
	told bool // that it runs
}

// starts notes that a container is about to be started.
func (w *worker) starts(name, id string) {
	if w.starting == nil {
		w.starting, w.anew = map[string]start{}, map[string]int{}
	}
	w.starting[name] = start{id: id}
}

// undecided says whether a call was cut off, or met what an earlier one is still
// making: the pod is looked at anew, and no error is reported.
func (w *worker) undecided(err error) bool {
	return cutoff.Lost(err) || (cutoff.Exists(err) || cutoff.Pending(err)) && w.errors < patient
}

// launch starts a container that was made. What became of it is what the runtime
// says of it then, not only what it answers.
func (w *worker) launch(ctx context.Context, c *corev1.Container, id string) error {
	w.starts(c.Name, id)
	startErr := w.a.Runtime.StartContainer(w.life, id)
	if err := w.refreshContainer(ctx, id); err != nil {
		return errors.Join(startErr, err) // once it answers, settleStarts finds out
	}
	if now := w.seen.ByID(id); startErr != nil && (now == nil || now.StartedAt.IsZero()) {
		return w.notStarted(c, id, startErr)
	}
	return w.begun(ctx, c, id)
}

// begun is the rest of a start: its hook and probes.
func (w *worker) begun(ctx context.Context, c *corev1.Container, id string) error {
	w.forgetStarted(c.Name)
	delete(w.anew, c.Name)
	if !w.starting[c.Name].told {
		w.starting[c.Name] = start{id, true}
		w.a.event(w.pod, c.Name, corev1.EventTypeNormal, "Started", "Container started")
		w.a.metrics.startedContainers.Inc()
		w.linkLog(id)
		w.publish()
		w.a.rotate.Poke()
	}
	now := w.seen.ByID(id)
	if now == nil || now.State != status.Running {
		delete(w.starting, c.Name)
		w.wakeUp() // it has ended already
		return nil
	}
	w.a.placement.Started(ctx, w.uid, now)
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		if err := w.postStart(ctx, c, now); err != nil {
			return err
		}
	}
	delete(w.starting, c.Name)
	w.watch(now, false)
	return nil
}

// refreshContainer reads one container anew.
func (w *worker) refreshContainer(ctx context.Context, id string) error {
	old := w.seen.ByID(id)
	c, err := w.readContainer(ctx, id, old.SandboxID)
	if err != nil {
		return err
	}
	if c == nil {
		w.seen.Forget(id)
		return nil
	}
	c.OOM, c.Resources = c.OOM || old.OOM, old.Resources
	if old.State != status.Exited {
		*old = *c
	}
	return nil
}

// failedStart makes a container that the runtime could not start one that has
// ended, so that it waits as a crashed one does.
func (w *worker) failedStart(c *corev1.Container, id string, err error) error {
	w.forgetStarted(c.Name)
	delete(w.anew, c.Name)
	w.a.event(w.pod, c.Name, corev1.EventTypeWarning, "Failed", "Error: %v", err)
	if now := w.seen.ByID(id); now != nil && now.State != status.Exited {
		now.State, now.ExitCode, now.Reason, now.Message = status.Exited, 128, startError, err.Error()
		now.FinishedAt = w.a.Clock.Now()
	}
	rest, _ := w.crashes.Remaining(c.Name, w.a.Clock.Now(), w.a.Clock.Now())
	return &blocked{retry: max(rest, time.Second), Waiting: status.Waiting{Reason: "RunContainerError", Message: err.Error()}}
}

// notStarted decides what it means that a container did not start: nothing, when
// the call was cut off or an earlier one had done half of it.
func (w *worker) notStarted(c *corev1.Container, id string, startErr error) error {
	now := w.seen.ByID(id)
	if !cutoff.Lost(startErr) {
		delete(w.starting, c.Name)
	}
	switch {
	case now == nil || w.spoiled(now), now.State == status.Created && cutoff.Exists(startErr) && w.anew[c.Name] < remade:
		return w.makeAnew(c.Name, id)
	case w.undecided(startErr) && now.State == status.Created:
		return fmt.Errorf("start container: %w", startErr)
	}
	return w.failedStart(c, id, startErr)
}

// spoiled says whether an instance is of no use that never ran, through no fault of
// its own: the runtime was killed while it made or started it.
func (w *worker) spoiled(c *status.Container) bool {
	if w.anew[c.Name] >= remade {
		return false
	}
	switch c.State {
	case status.Exited:
		return c.StartedAt.IsZero() && c.Reason == startError && (w.starting[c.Name].id == c.ID || cutoff.Told(c.Message))
	case status.Unknown:
		return w.starting[c.Name].id == c.ID || !w.ran(c)
	}
	return false
}

// ran says whether a container is known to have run.
func (w *worker) ran(c *status.Container) bool {
	known := w.reported
	if known == nil {
		known = &w.pod.Status
	}
	for _, list := range [][]corev1.ContainerStatus{known.InitContainerStatuses, known.ContainerStatuses, known.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].ContainerID == "containerd://"+c.ID {
				return status.Ran(&list[i])
			}
		}
	}
	return false
}

// settleStarts sees to the containers whose start was cut off: what runs is taken
// for started, what is spoiled is made anew as the instance that it was.
func (w *worker) settleStarts(ctx context.Context) error {
	for _, c := range slices.Clone(w.seen.Containers) {
		s := w.containerSpec(c.Name)
		switch {
		case s == nil || w.seen.Latest(c.Name).ID != c.ID:
		case w.spoiled(&c):
			if err := w.remove(c.Name, c.ID); err != nil {
				return err
			}
		case w.starting[c.Name].id == c.ID && c.State != status.Created:
			if err := w.blockedBy(c.Name, w.begun(ctx, s, c.ID)); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeAnew removes an instance that never ran, and has the next step make it again:
// neither a restart nor a crash.
func (w *worker) makeAnew(name, id string) error {
	if err := w.remove(name, id); err != nil {
		return err
	}
	return &blocked{retry: time.Millisecond}
}

func (w *worker) remove(name, id string) error {
	w.log.Info("container is made anew, its start was cut off", zap.String("container", name), zap.String("id", id))
	w.starts(name, id) // until it is gone
	if err := w.unmake(id); err != nil {
		return err
	}
	delete(w.starting, name)
	w.anew[name]++
	return nil
}

// unmake removes an instance that never ran.
func (w *worker) unmake(id string) error {
	c := w.seen.ByID(id)
	if c == nil {
		return nil
	}
	if err := w.a.Runtime.RemoveContainer(w.life, id); err != nil && !isNotFound(err) {
		return fmt.Errorf("remove container that never ran: %w", err)
	}
	_ = os.Remove(w.messagePath(c.Name, c.Attempt)) // goes with the pod at the latest
	w.seen.Forget(id)
	return nil
}
