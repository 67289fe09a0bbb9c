package observe

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/status"
)

// The methods in this file record the worker's own actions.

// SandboxCreated records a new sandbox, and reads its status from the runtime, mainly its addresses.
func (o *Observer) SandboxCreated(ctx context.Context, id string, attempt uint32) error {
	o.node.Owners.Add(id, o.id.UID)
	o.seen.Sandboxes = append(o.seen.Sandboxes,
		status.Sandbox{ID: id, Attempt: attempt, Ready: true, CreatedAt: o.node.Clock.Now()})
	made, err := o.runtime().Sandbox(ctx, id)
	if err == nil && made != nil {
		o.seen.Sandboxes[len(o.seen.Sandboxes)-1] = *made
	}
	return err
}

// SandboxStopped records that a sandbox is dead.
func (o *Observer) SandboxStopped(id string) {
	for i := range o.seen.Sandboxes {
		if s := &o.seen.Sandboxes[i]; s.ID == id {
			s.Ready = false
		}
	}
}

// ContainerCreated records a new container.
func (o *Observer) ContainerCreated(c status.Container) {
	o.node.Owners.Add(c.ID, o.id.UID)
	c.CreatedAt = o.node.Clock.Now()
	o.seen.Containers = append(o.seen.Containers, c)
}

// Refresh reads one container again. It forgets a container that no longer exists, and keeps the state of a container
// whose exit an event has reported.
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

// StartFailed records that a container ended because the runtime could not start it.
func (o *Observer) StartFailed(id string, why error) {
	if c := o.seen.ByID(id); c != nil && c.State != status.Exited {
		c.State, c.ExitCode, c.Reason, c.Message = status.Exited, 128, StartError, why.Error()
		c.FinishedAt = o.node.Clock.Now()
	}
}

// ErrAlive means that the runtime reports a stopped container as running. containerd 2 does so for some seconds after a
// shim was killed.
var ErrAlive = errors.New("container still runs after its stop")

// Stopped records how a stopped container ended. It applies pending events first, because they are more precise than
// the runtime's status.
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
		c.MarkLost(o.node.Clock.Now())
		return nil
	}
	now.Resources = c.Resources
	*c = *now
	if c.State == status.Running {
		return ErrAlive
	}
	return nil
}

// SetReason replaces the reason and the message of a container's end.
func (o *Observer) SetReason(id, reason, message string) {
	if c := o.seen.ByID(id); c != nil {
		c.Reason, c.Message = reason, message
	}
}

// SetMessage sets the message of a terminated container that has no termination message.
func (o *Observer) SetMessage(id, message string) {
	if c := o.seen.ByID(id); c != nil && c.State == status.Exited && c.Message == "" {
		c.Message = message
	}
}

// Resized records the current resources of a container.
func (o *Observer) Resized(id string, r *corev1.ResourceRequirements) {
	if c := o.seen.ByID(id); c != nil {
		c.Resources = r.DeepCopy()
	}
}

// Forget removes a container or sandbox that no longer exists.
func (o *Observer) Forget(id string) { o.seen.Forget(id) }

// ForgetAll removes all sandboxes and containers, because the runtime has removed them.
func (o *Observer) ForgetAll() { o.seen = status.Observed{} }
