package agent

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PLEG is nil while the node learns what becomes of its pods; see pleg.Health.
func (a *Agent) PLEG() error { return a.pleg.Check() }

// askRuntime asks the runtime for everything of ours.
func (a *Agent) askRuntime(ctx context.Context) (sandboxes []*cri.PodSandbox, containers []*cri.Container, err error) {
	done := a.pleg.Relist()
	defer func() { done(err) }()
	return a.inventory().All(ctx)
}
