package relist

import (
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
)

// Held is the sandboxes and containers of one pod in a runtime.
type Held struct {
	Identity   spec.Identity
	sandboxes  map[string]bool // ready
	containers map[string]cri.ContainerState
}

// ByPod groups sandboxes and containers by pod.
func ByPod(sandboxes []*cri.PodSandbox, containers []*cri.Container) map[types.UID]*Held {
	found := map[types.UID]*Held{}
	of := func(labels map[string]string) *Held {
		id := spec.IdentityOf(labels)
		r := found[types.UID(id.UID)]
		if r == nil {
			r = &Held{Identity: id, sandboxes: map[string]bool{}, containers: map[string]cri.ContainerState{}}
			found[types.UID(id.UID)] = r
		}
		return r
	}
	for _, s := range sandboxes {
		of(s.Labels).sandboxes[s.Id] = s.State == cri.PodSandboxState_SANDBOX_READY
	}
	for _, c := range containers {
		of(c.Labels).containers[c.Id] = c.State
	}
	return found
}

// Matches reports whether seen is up to date; a nil Held has nothing.
func (h *Held) Matches(seen *status.Observed) bool {
	if h == nil {
		h = &Held{}
	}
	if seen == nil {
		seen = &status.Observed{}
	}
	if len(h.sandboxes) != len(seen.Sandboxes) || len(h.containers) != len(seen.Containers) {
		return false
	}
	for _, s := range seen.Sandboxes {
		if ready, ok := h.sandboxes[s.ID]; !ok || ready != s.Ready {
			return false
		}
	}
	for _, c := range seen.Containers {
		state, ok := h.containers[c.ID]
		if !ok || (state == cri.ContainerState_CONTAINER_RUNNING) != (c.State == status.Running) {
			return false
		}
	}
	return true
}

// Reconcile keeps facts known from events that the runtime does not list yet, or no
// longer lists: an exit, an OOM kill, an address.
func Reconcile(next, known *status.Observed) {
	for i := range next.Containers {
		c := &next.Containers[i]
		old := known.ByID(c.ID)
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
		for _, old := range known.Sandboxes {
			if old.ID == s.ID && len(s.IPs) == 0 {
				s.IPs = old.IPs
			}
		}
	}
}
