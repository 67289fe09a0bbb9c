package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/pod/env"
)

// image is mounted by the runtime, into each container: see Set.Images.
func image(context.Context, *Set, *corev1.Volume, env.Facts, *string) (string, error) { return "", nil }

// imageMount shows an image, or the folder sub of it. It can only be read, whatever
// the mount says, and nobody mounts anything below it.
func imageMount(m *corev1.VolumeMount, id, sub string, can Features) (*cri.Mount, error) {
	if sub != "" && !can.ImageSubPaths {
		return nil, fmt.Errorf("%w: volumeMount %q: a subPath of an image volume is not supported by the runtime", env.ErrConfig, m.Name)
	}
	if len(m.BindMountOptions) > 0 {
		return nil, fmt.Errorf("%w: volume %q requested bind mount options, which an image volume cannot have", env.ErrConfig, m.Name)
	}
	return &cri.Mount{ContainerPath: m.MountPath, Image: &cri.ImageSpec{Image: id}, ImageSubPath: sub, Readonly: true}, nil
}
