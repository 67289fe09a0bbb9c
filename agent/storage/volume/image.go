package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/env"
)

// Image does nothing: the runtime mounts the image into each container, see Set.Images.
func (s *setup) Image(context.Context, *corev1.Volume) (string, error) { return "", nil }

// imageMount returns the mount of an image, or of its folder sub. It is always read-only and private.
func imageMount(m *corev1.VolumeMount, id, sub string, can Features) (*cri.Mount, error) {
	if sub != "" && !can.ImageSubPaths {
		return nil, fmt.Errorf("%w: volumeMount %q: a subPath of an image volume is not supported by the runtime",
			env.ErrConfig, m.Name)
	}
	if len(m.BindMountOptions) > 0 {
		return nil, fmt.Errorf("%w: volume %q requested bind mount options, which an image volume cannot have", env.ErrConfig,
			m.Name)
	}
	return &cri.Mount{ContainerPath: m.MountPath, Image: &cri.ImageSpec{Image: id}, ImageSubPath: sub, Readonly: true}, nil
}
