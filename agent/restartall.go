package agent

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/plan"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
)

// restartingAll is what upstream says of containers that end, and wait, because all
// are to start anew.
const (
	restartingAll        = "RestartingAllContainers"
	restartingAllMessage = "The container is removed because RestartAllContainers in place"
)

// restartAll ends what runs, without hooks and at once, waits out the backoff of
// the container that asked for it, and removes every container: what the runtime
// does not have starts anew. Sandbox and volumes stay. Each step can be done again.
func (w *worker) restartAll(ctx context.Context, p plan.Plan) (again bool, err error) {
	if len(p.Kill) > 0 {
		w.report(false)
		return true, w.killForRestart(ctx, p.Kill)
	}
	trigger := p.RestartAll
	old := w.regular()
	for _, c := range old {
		w.waiting[c.Name] = status.Waiting{Reason: restartingAll, Message: restartingAllMessage}
	}
	b := &blocked{}
	if errors.As(w.crashed(spec.Find(w.pod, trigger.Name), trigger), &b) {
		w.waiting[trigger.Name] = b.Waiting
		w.retryIn(b.retry)
		return false, nil
	}
	w.crashes.Attempt(trigger.Name, trigger.FinishedAt, w.a.Clock.Now())
	delete(w.announced, trigger.Name)
	w.report(false)
	return true, w.removeAll(ctx, old, trigger.ID)
}

func (w *worker) killForRestart(ctx context.Context, list []plan.Kill) error {
	var all []*status.Container
	for _, k := range list {
		w.a.event(w.pod, k.Container.Name, corev1.EventTypeNormal, "Killing", "%s", k.Message)
		all = append(all, k.Container)
	}
	if err := w.killGroup(ctx, all, w.a.Clock.Now()); err != nil {
		return err
	}
	for _, c := range all {
		c.Reason, c.Message = restartingAll, restartingAllMessage
	}
	return nil
}

// regular are the instances of all containers but ephemeral ones, as they are now.
func (w *worker) regular() []status.Container {
	var out []status.Container
	for _, list := range [][]corev1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
		for i := range list {
			for _, c := range w.seen.Named(list[i].Name) {
				out = append(out, *c)
			}
		}
	}
	return out
}

// removeAll removes the trigger last: as long as it is there the restart is not
// forgotten, whatever happens to the agent.
func (w *worker) removeAll(ctx context.Context, list []status.Container, trigger string) error {
	var last []status.Container
	for _, c := range list {
		if c.ID == trigger {
			last = append(last, c)
		} else if err := w.removeOne(ctx, &c); err != nil {
			return err
		}
	}
	for _, c := range last {
		if err := w.removeOne(ctx, &c); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) removeOne(ctx context.Context, c *status.Container) error {
	if err := w.a.Runtime.RemoveContainer(ctx, c.ID); err != nil && !isNotFound(err) {
		return fmt.Errorf("remove container to restart all: %w", err)
	}
	w.a.logs.Remove(w.pod, c)
	_ = os.Remove(w.messagePath(c.Name, c.Attempt)) // goes with the pod at the latest
	w.seen.Forget(c.ID)
	return nil
}
