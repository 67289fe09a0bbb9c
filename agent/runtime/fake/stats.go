package fake

import (
	"context"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListContainerStats calls Config.Stats for each running container.
func (s *containerService) ListContainerStats(ctx context.Context, filter *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error) {
	if err := s.gate.begin(ctx, "ListContainerStats", filter.GetId()); err != nil {
		return nil, err
	}
	if s.stats == nil {
		return nil, errNoStats
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*cri.ContainerStats
	for _, c := range s.containers {
		if c.state != cri.ContainerState_CONTAINER_RUNNING || !strings.HasPrefix(c.id, filter.GetId()) || !hasLabels(c.config.Labels, filter.GetLabelSelector()) {
			continue
		}
		out = append(out, s.stats(&cri.ContainerAttributes{Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels, Annotations: c.config.Annotations}))
	}
	slices.SortFunc(out, func(a, b *cri.ContainerStats) int { return strings.Compare(a.Attributes.Id, b.Attributes.Id) })
	return out, nil
}
