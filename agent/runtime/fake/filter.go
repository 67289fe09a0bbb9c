package fake

import (
	"cmp"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// matches is CRI's filter: everything that is set must hold; an ID may be cut
// short. The caller holds Runtime.mu.
func (s *sandbox) matches(f *cri.PodSandboxFilter) bool {
	return strings.HasPrefix(s.id, f.GetId()) &&
		(f.GetState() == nil || f.State.State == s.state) &&
		hasLabels(s.config.Labels, f.GetLabelSelector())
}

func (c *container) matches(f *cri.ContainerFilter) bool {
	return strings.HasPrefix(c.id, f.GetId()) &&
		strings.HasPrefix(c.sandbox.id, f.GetPodSandboxId()) &&
		(f.GetState() == nil || f.State.State == c.state) &&
		hasLabels(c.config.Labels, f.GetLabelSelector())
}

func hasLabels(labels, selector map[string]string) bool {
	for key, value := range selector {
		if got, ok := labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// byAge orders the older first, and equals by their ID.
func byAge(a, b int64, idA, idB string) int {
	return cmp.Or(cmp.Compare(a, b), cmp.Compare(idA, idB))
}
