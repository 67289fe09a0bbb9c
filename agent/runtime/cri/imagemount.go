package cri

import (
	"context"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"monopod/agent/runtime"
)

// nameImages adds the image ID as a name to every image that is mounted, because CRI mounts images by containerd's
// names but adds the ID only to the names of pulled images, not of imported ones. It returns an error for a containerd
// that cannot mount images, or cannot mount a folder of one.
func (i *imageService) nameImages(ctx context.Context, mounts []*cri.Mount) error {
	for _, m := range mounts {
		if m.Image == nil {
			continue
		}
		v, err := i.pods.Version(ctx, &cri.VersionRequest{})
		if err != nil {
			return err
		}
		if err = runtime.MountsImages(v); err == nil && m.ImageSubPath != "" {
			err = runtime.MountsImageFolders(v)
		}
		if err != nil {
			return status.Errorf(codes.Unimplemented, "%v: %v", crierrors.ErrImageVolumeMountFailed, err)
		}
		if err := i.nameImage(InNamespace(ctx), m.Image.Image); err != nil {
			return status.Errorf(status.Code(err), "%v: %v", crierrors.ErrImageVolumeMountFailed, status.Convert(err).Message())
		}
	}
	return nil
}

func (i *imageService) nameImage(ctx context.Context, id string) error {
	service := i.client.ImageService()
	if _, err := service.Get(ctx, id); !errdefs.IsNotFound(err) {
		return errgrpc.ToGRPC(err)
	}
	img, err := i.ImageStatus(ctx, id)
	if err != nil {
		return err
	}
	names := append(img.GetRepoTags(), img.GetRepoDigests()...)
	if len(names) == 0 {
		return status.Errorf(codes.NotFound, "no image %q", id)
	}
	named, err := service.Get(ctx, names[0])
	if err == nil {
		_, err = service.Create(ctx, images.Image{Name: img.Id, Target: named.Target, Labels: named.Labels})
	}
	if errdefs.IsAlreadyExists(err) {
		return nil
	}
	return errgrpc.ToGRPC(err)
}
