package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// watchOOM tells of processes that the kernel killed because the whole machine was
// out of memory, as an event SystemOOM of the node. Those killed because a
// container reached its limit are the containers' affair.
func (a *Agent) watchOOM(ctx context.Context) {
	for kill := range a.Kernel.Watch(ctx) {
		if kill.System {
			a.node.Event(corev1.EventTypeWarning, "SystemOOM", "%s", kill)
		}
	}
}
