package volume

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/env"
)

// Features are optional features of a runtime for mounts.
type Features struct {
	RecursiveReadOnly bool
	Options           bool // noexec, nodev, nosuid
	ImageSubPaths     bool // subPath of image volumes
}

// Mounts returns the mounts of a container. paths are the paths of the pod's volumes, and vars expand subPathExpr.
// subPaths are mounted below the pod's folder until Unmount.
func (s *Set) Mounts(pod *corev1.Pod, c *corev1.Container, paths map[string]string, vars []env.Var,
	can Features) ([]*cri.Mount, error) {
	var out []*cri.Mount
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		host, ok := paths[m.Name]
		if !ok {
			return nil, fmt.Errorf("%w: volume %q of a volumeMount does not exist", env.ErrConfig, m.Name)
		}
		sub, err := expand(m, vars)
		if err != nil {
			return nil, err
		}
		mount, err := s.mount(pod, c, i, host, sub, can)
		if err != nil {
			return nil, err
		}
		out = append(out, mount)
	}
	return out, nil
}

// mount returns the mount of the container's i-th volumeMount.
func (s *Set) mount(pod *corev1.Pod, c *corev1.Container, i int, host, sub string, can Features) (*cri.Mount, error) {
	m := &c.VolumeMounts[i]
	if id := s.Images[m.Name]; id != "" {
		return imageMount(m, id, sub, can)
	}
	if sub != "" {
		mounted, err := s.subPath(host, sub, s.subPathTarget(m.Name, c.Name, i))
		if err != nil {
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", m.Name, c.Name, err)
		}
		host = mounted
	}
	return mountOf(m, host, s.types().ReadOnly(pod, m.Name), can)
}

// expand returns the subPath of a volumeMount; empty: none.
func expand(m *corev1.VolumeMount, vars []env.Var) (string, error) {
	if m.SubPathExpr == "" {
		return m.SubPath, nil
	}
	var missing []string
	sub, err := env.Expand(m.SubPathExpr, func(name string) (string, bool) {
		i := slices.IndexFunc(vars, func(v env.Var) bool { return v.Name == name })
		if i < 0 {
			missing = append(missing, name)
			return "", false
		}
		return vars[i].Value, true
	})
	if err != nil {
		return "", fmt.Errorf("subPathExpr of volumeMount %q: %w", m.Name, err)
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("missing value for %q in subPathExpr of volumeMount %q", strings.Join(missing, ", "), m.Name)
	}
	return sub, nil
}

func mountOf(m *corev1.VolumeMount, host string, readOnly bool, can Features) (*cri.Mount, error) {
	out := &cri.Mount{
		ContainerPath: m.MountPath, HostPath: host, Readonly: m.ReadOnly || readOnly,
		Propagation: propagation(m.MountPropagation), MountOptions: m.BindMountOptions,
	}
	if len(m.BindMountOptions) > 0 && !can.Options {
		return nil, fmt.Errorf("volume %q requested bind mount options, but they are not supported by the runtime", m.Name)
	}
	if r := m.RecursiveReadOnly; r != nil && *r != corev1.RecursiveReadOnlyDisabled {
		out.RecursiveReadOnly = can.RecursiveReadOnly
		if *r == corev1.RecursiveReadOnlyEnabled && !can.RecursiveReadOnly {
			return nil, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime",
				m.Name)
		}
	}
	if out.RecursiveReadOnly && (!out.Readonly || out.Propagation != cri.MountPropagation_PROPAGATION_PRIVATE) {
		return nil, errors.New("a mount that is recursively read-only must be read-only and private")
	}
	return out, nil
}

func propagation(p *corev1.MountPropagationMode) cri.MountPropagation {
	if p != nil {
		switch *p {
		case corev1.MountPropagationBidirectional:
			return cri.MountPropagation_PROPAGATION_BIDIRECTIONAL
		case corev1.MountPropagationHostToContainer:
			return cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		}
	}
	return cri.MountPropagation_PROPAGATION_PRIVATE
}
