package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/host/mount"
	"monopod/agent/podapi/env"
	"monopod/agent/storage/tree"
)

// emptyDirMode is the mode of a new emptyDir.
const emptyDirMode os.FileMode = 0o777

// EmptyDir creates the volume once. Changes by containers are kept, including changes of its mode.
func (s *setup) EmptyDir(_ context.Context, v *corev1.Volume) (string, error) {
	dir := s.dir(v)
	err := s.emptyDirAt(dir, v.EmptyDir, s.facts)
	propagates := func(c *corev1.Container, name string) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == name && propagation(m.MountPropagation) != cri.MountPropagation_PROPAGATION_PRIVATE
		})
	}
	if err == nil && firstUser(s.facts.Pod, v.Name, propagates) != "" {
		err = s.Mounter.Share(dir)
	}
	return dir, err
}

func (s *Set) emptyDirAt(dir string, v *corev1.EmptyDirVolumeSource, facts env.Facts) error {
	o := mount.Tmpfs{Mode: emptyDirMode, Group: fsGroup(facts.Pod)}
	if o.Group != nil {
		o.Mode |= os.ModeSetgid | tree.GroupWrites | tree.GroupEnters
	}
	switch {
	case v.Medium == corev1.StorageMediumDefault:
		return s.makeEmptyDir(dir, o)
	case v.Medium == corev1.StorageMediumMemory:
		o.Size = memorySize(v, facts)
		if err := s.mountOnce(dir, func() error { return s.Mounter.Tmpfs(dir, o) }); err != nil {
			return fmt.Errorf("emptyDir in memory: cannot mount a tmpfs: %w", err)
		}
		return nil
	case strings.HasPrefix(string(v.Medium), string(corev1.StorageMediumHugePages)):
		page, err := pageSize(v.Medium, facts.Pod)
		if err != nil {
			return err
		}
		o.Page = page.Value()
		if v.SizeLimit != nil {
			o.Size = v.SizeLimit.Value()
		}
		if err := s.mountOnce(dir, func() error { return s.Mounter.Huge(dir, o) }); err != nil {
			return fmt.Errorf("emptyDir of huge pages: cannot mount pages of %s: %w", page.String(), err)
		}
		return nil
	}
	return fmt.Errorf("unknown storage medium %q", v.Medium)
}

// makeEmptyDir creates the folder under a temporary name, so that an existing one is complete.
func (s *Set) makeEmptyDir(dir string, o mount.Tmpfs) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	next := filepath.Join(filepath.Dir(dir), ".new-"+filepath.Base(dir))
	if err := os.MkdirAll(next, 0o750); err != nil {
		return err
	}
	if o.Group != nil {
		if err := tree.IgnoreRights(os.Chown(next, -1, int(*o.Group))); err != nil {
			return err
		}
	}
	if err := os.Chmod(next, o.Mode); err != nil { // regardless of the umask
		return err
	}
	return os.Rename(next, dir)
}

// mountOnce mounts on dir unless something is mounted there.
func (s *Set) mountOnce(dir string, do func() error) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	mounted, err := s.Mounter.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	return do()
}

// memorySize returns the size of an emptyDir in memory: the minimum of its own limit, the limits of the pod and the
// node's allocatable memory (upstream: sizeLimit of pkg/volume/emptydir).
func memorySize(v *corev1.EmptyDirVolumeSource, facts env.Facts) int64 {
	allocatable := facts.Allocatable[corev1.ResourceMemory]
	size := allocatable.Value()
	unlimited := func(c corev1.Container) bool { return c.Resources.Limits.Memory().IsZero() }
	if !slices.ContainsFunc(facts.Pod.Spec.Containers, unlimited) {
		limit := resourcehelper.PodLimits(facts.Pod, resourcehelper.PodResourcesOptions{})[corev1.ResourceMemory]
		size = smaller(size, limit.Value())
	}
	if v.SizeLimit != nil {
		size = smaller(size, v.SizeLimit.Value())
	}
	return size
}

// smaller returns the smaller of two sizes; 0 means unlimited.
func smaller(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// pageSize returns the huge page size of a medium: its own, or the only one that the pod requests.
func pageSize(medium corev1.StorageMedium, pod *corev1.Pod) (resource.Quantity, error) {
	requested := map[string]bool{}
	for name := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
			requested[size] = true
		}
	}
	size, explicit := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix))
	if !explicit && len(requested) > 1 {
		return resource.Quantity{},
			errors.New("medium HugePages requires that the pod requests only one size of huge pages")
	}
	for only := range requested {
		if !explicit {
			size = only
		}
	}
	if !requested[size] {
		return resource.Quantity{}, fmt.Errorf("medium %s: the pod requests no huge pages of this size", medium)
	}
	q, err := resource.ParseQuantity(size)
	if err != nil {
		return q, fmt.Errorf("medium %s: %w", medium, err)
	}
	return q, nil
}
