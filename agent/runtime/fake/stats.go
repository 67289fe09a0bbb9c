package fake

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errNoStats: goroutines share one process, whose use nobody can tell apart.
var errNoStats = status.Error(codes.Unimplemented, "containers in memory have no statistics")

// ListContainerStats asks Config.Stats about each container that runs.
func (r *Runtime) ListContainerStats(ctx context.Context, filter *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error) {
	if err := r.begin(ctx, "ListContainerStats", filter.GetId()); err != nil {
		return nil, err
	}
	if r.cfg.Stats == nil {
		return nil, errNoStats
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*cri.ContainerStats
	for _, c := range r.containers {
		if c.state != cri.ContainerState_CONTAINER_RUNNING || !strings.HasPrefix(c.id, filter.GetId()) || !hasLabels(c.config.Labels, filter.GetLabelSelector()) {
			continue
		}
		out = append(out, r.cfg.Stats(&cri.ContainerAttributes{Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels, Annotations: c.config.Annotations}))
	}
	slices.SortFunc(out, func(a, b *cri.ContainerStats) int { return strings.Compare(a.Attributes.Id, b.Attributes.Id) })
	return out, nil
}

// ImageFsInfo tells that the images lie in memory.
func (r *Runtime) ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error) {
	if err := r.begin(ctx, "ImageFsInfo", ""); err != nil {
		return nil, err
	}
	return nil, errNoStats
}
