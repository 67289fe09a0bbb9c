package cri

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListContainerStats is CRI's.
func (r *Runtime) ListContainerStats(ctx context.Context,
	filter *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error) {
	resp, err := r.pods.ListContainerStats(ctx, &cri.ListContainerStatsRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	return resp.Stats, nil
}

// ImageFsInfo is CRI's.
func (i *imageService) ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error) {
	return i.images.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
}
