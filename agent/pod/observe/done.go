package observe

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/status"
)

// What follows notes what the worker has done itself.

// SandboxMade notes a sandbox that was just made, and reads what the runtime knows of
// it, its addresses first of all.
func (o *Observer) SandboxMade(ctx context.Context, id string, attempt uint32) error {
	o.node.Owners.Add(id, o.id.UID)
	o.seen.Sandboxes = append(o.seen.Sandboxes, status.Sandbox{ID: id, Attempt: attempt, Ready: true, CreatedAt: o.node.Clock.Now()})
	made, err := o.runtime().Sandbox(ctx, id)
	if err == nil && made != nil {
		o.seen.Sandboxes[len(o.seen.Sandboxes)-1] = *made
	}
	return err
}

// SandboxStopped notes that a sandbox is dead.
func (o *Observer) SandboxStopped(id string) {
	for i := range o.seen.Sandboxes {
		if s := &o.seen.Sandboxes[i]; s.ID == id {
			s.Ready = false
		}
	}
}

// ContainerMade notes a container that was just made.
func (o *Observer) ContainerMade(c status.Container) {
	o.node.Owners.Add(c.ID, o.id.UID)
	c.CreatedAt = o.node.Clock.Now()
	o.seen.Containers = append(o.seen.Containers, c)
}

// Refresh reads one container anew. One that is gone is forgotten; one that ended stays
// as its event told.
func (o *Observer) Refresh(ctx context.Context, id string) error {
	old := o.seen.ByID(id)
	c, err := o.runtime().Container(ctx, id, old.SandboxID)
	if err != nil {
		return err
	}
	if c == nil {
		o.seen.Forget(id)
		return nil
	}
	c.OOM, c.Resources = c.OOM || old.OOM, old.Resources
	if old.State != status.Exited {
		*old = *c
	}
	return nil
}

// StartFailed notes that a container ended because the runtime could not start it.
func (o *Observer) StartFailed(id string, why error) {
	if c := o.seen.ByID(id); c != nil && c.State != status.Exited {
		c.State, c.ExitCode, c.Reason, c.Message = status.Exited, 128, StartError, why.Error()
		c.FinishedAt = o.node.Clock.Now()
	}
}

// ErrAlive says that, by the runtime, a container runs which it said it had stopped, as
// containerd 2 does for some seconds when a shim was killed.
var ErrAlive = errors.New("container still runs after its stop")

// Stopped notes how a container ended that was stopped, unless its event has told: the
// events that came meanwhile come first, they know best.
func (o *Observer) Stopped(ctx context.Context, id string) error {
	for _, ev := range o.pending() {
		o.Apply(ev)
	}
	c := o.seen.ByID(id)
	if c == nil || c.State == status.Exited || ctx.Err() != nil {
		return ctx.Err()
	}
	now, err := o.runtime().Container(ctx, id, c.SandboxID)
	if err != nil {
		return err
	}
	if now == nil {
		c.Lose(o.node.Clock.Now())
		return nil
	}
	now.Resources = c.Resources
	*c = *now
	if c.State == status.Running {
		return ErrAlive
	}
	return nil
}

// Explain replaces the reason why a container ended.
func (o *Observer) Explain(id, reason, message string) {
	if c := o.seen.ByID(id); c != nil {
		c.Reason, c.Message = reason, message
	}
}

// Resized notes what a container has now.
func (o *Observer) Resized(id string, r *corev1.ResourceRequirements) {
	if c := o.seen.ByID(id); c != nil {
		c.Resources = r.DeepCopy()
	}
}

// Forget drops a container or sandbox that is no more.
func (o *Observer) Forget(id string) { o.seen.Forget(id) }

// ForgetAll is for a pod of which nothing is left.
func (o *Observer) ForgetAll() { o.seen = status.Observed{} }
