package fake

import (
	"cmp"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// matches reports whether CRI's filter selects the sandbox: every field that is set must match; an ID may be a prefix.
// The caller holds sandboxService.mu.
func (s *sandbox) matches(f *cri.PodSandboxFilter) bool {
	return strings.HasPrefix(s.id, f.GetId()) &&
		(f.GetState() == nil || f.State.State == s.state) &&
		hasLabels(s.config.Labels, f.GetLabelSelector())
}

// matches reports whether CRI's filter selects the container. The caller holds containerService.mu.
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

// oldestFirst returns info of the entries that match, sorted by age, then ID.
func oldestFirst[V any, I interface {
	GetId() string
	GetCreatedAt() int64
}](all map[string]V, matches func(V) bool, info func(V) I) []I {
	var list []I
	for _, one := range all {
		if matches(one) {
			list = append(list, info(one))
		}
	}
	slices.SortFunc(list, func(a, b I) int {
		return cmp.Or(cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()), cmp.Compare(a.GetId(), b.GetId()))
	})
	return list
}
