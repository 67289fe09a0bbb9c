package relist

import (
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
)

// Held contains the sandboxes and containers of one pod in a runtime.
type Held struct {
	Identity   spec.Identity
	sandboxes  map[string]bool // by ID: whether it is ready
	containers map[string]cri.ContainerState
}

// ByPod groups sandboxes and containers by pod.
func ByPod(sandboxes []*cri.PodSandbox, containers []*cri.Container) map[types.UID]*Held {
	found := map[types.UID]*Held{}
	of := func(labels map[string]string) *Held {
		id := spec.IdentityOf(labels)
		h := found[types.UID(id.UID)]
		if h == nil {
			h = &Held{Identity: id, sandboxes: map[string]bool{}, containers: map[string]cri.ContainerState{}}
			found[types.UID(id.UID)] = h
		}
		return h
	}
	for _, s := range sandboxes {
		of(s.Labels).sandboxes[s.Id] = s.State == cri.PodSandboxState_SANDBOX_READY
	}
	for _, c := range containers {
		of(c.Labels).containers[c.Id] = c.State
	}
	return found
}

// Matches reports whether observed is up to date. Both may be nil, which means empty.
func (h *Held) Matches(observed *status.Observed) bool {
	if h == nil {
		h = &Held{}
	}
	if observed == nil {
		observed = &status.Observed{}
	}
	if len(h.sandboxes) != len(observed.Sandboxes) || len(h.containers) != len(observed.Containers) {
		return false
	}
	for _, s := range observed.Sandboxes {
		if ready, ok := h.sandboxes[s.ID]; !ok || ready != s.Ready {
			return false
		}
	}
	for _, c := range observed.Containers {
		state, ok := h.containers[c.ID]
		if !ok || (state == cri.ContainerState_CONTAINER_RUNNING) != (c.State == status.Running) {
			return false
		}
	}
	return true
}

// Reconcile copies facts from the earlier state to the next one that the runtime does not list yet, or no longer lists:
// an exit, an OOM kill, an address.
func Reconcile(next, earlier *status.Observed) {
	for i := range next.Containers {
		c := &next.Containers[i]
		old := earlier.ByID(c.ID)
		if old == nil {
			continue
		}
		c.OOM, c.Resources = c.OOM || old.OOM, old.Resources
		if old.State == status.Exited {
			*c = *old
		}
	}
	for i := range next.Sandboxes {
		s := &next.Sandboxes[i]
		for _, old := range earlier.Sandboxes {
			if old.ID == s.ID && len(s.IPs) == 0 {
				s.IPs = old.IPs
			}
		}
	}
}
