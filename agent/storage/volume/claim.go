package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/host/mount"
	"monopod/agent/podapi/spec"
	"monopod/agent/storage/tree"
	api "monopod/apiserver/kit/volume"
)

// Claim returns the path of the volume behind a claim. Only devices are mounted: the volume is on this machine. The
// pod's group is applied once, not at each refresh.
func (s *setup) Claim(ctx context.Context, v *corev1.Volume) (string, error) {
	if s.Set.Claim == nil {
		return "", errors.New("claims are not supported here")
	}
	pv, err := s.Set.Claim(ctx, v)
	if err != nil {
		return "", err
	}
	name, of := api.AllPersistent().Of(&pv.Spec.PersistentVolumeSource)
	block := pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
	s.plugin = of.Plugin
	if c := firstUser(s.facts.Pod, v.Name, mounts); c != "" && block {
		return "", fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts of container %s", v.Name, c)
	}
	if c := firstUser(s.facts.Pod, v.Name, devices); c != "" && !block {
		return "", fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices of container %s",
			v.Name, c)
	}
	switch {
	case of.SetUp == nil:
		return "", unsupported("PersistentVolumes", name)
	case block && of.Path != nil:
		return blockDevice(of.Path(&pv.Spec.PersistentVolumeSource))
	}
	return of.SetUp(s, ctx, pv, v)
}

// ClaimedHostPath returns the path; hostPath volumes keep their group.
func (s *setup) ClaimedHostPath(_ context.Context, pv *corev1.PersistentVolume, _ *corev1.Volume) (string, error) {
	return pv.Spec.HostPath.Path, checkHostPath(pv.Spec.HostPath)
}

// ClaimedLocal returns the path of a folder, or mounts a device with a file system.
func (s *setup) ClaimedLocal(_ context.Context, pv *corev1.PersistentVolume,
	v *corev1.Volume) (dir string, err error) {
	pod := s.facts.Pod
	readOnly := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
	path := pv.Spec.Local.Path
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("path %q does not exist", path)
	case err != nil:
		return "", err
	case isKind(info.Mode(), corev1.HostPathBlockDev):
		dir, err = s.device(pv, v, readOnly)
	case !info.IsDir():
		return "", fmt.Errorf("%q is neither a folder nor a block device", path)
	default:
		dir, err = filepath.EvalSymlinks(path)
	}
	if err != nil || s.Have[v.Name] != "" || pod.Spec.SecurityContext == nil {
		return dir, err
	}
	return dir, tree.IgnoreRights(
		tree.ApplyFSGroup(dir, fsGroup(pod), readOnly, pod.Spec.SecurityContext.FSGroupChangePolicy))
}

// device mounts a device with a local volume below the pod's folder. Each pod has its own mount, which is writable:
// containers mount it read-only where necessary.
func (s *setup) device(pv *corev1.PersistentVolume, v *corev1.Volume, readOnly bool) (string, error) {
	dir := s.dir(v)
	d := mount.Device{Path: pv.Spec.Local.Path, Options: pv.Spec.MountOptions, ReadOnly: readOnly}
	if pv.Spec.Local.FSType != nil {
		d.FSType = *pv.Spec.Local.FSType
	}
	return dir, s.mountOnce(dir, func() error { return s.Mounter.Device(dir, d) })
}

// blockDevice returns the path of a device that containers get without a file system.
func blockDevice(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(resolved)
	if err == nil && !isKind(info.Mode(), corev1.HostPathBlockDev) {
		err = fmt.Errorf("%s is not a block device", path)
	}
	return resolved, err
}

func devices(c *corev1.Container, name string) bool {
	return slices.ContainsFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == name })
}

func mounts(c *corev1.Container, name string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == name })
}

// Used reports whether a container of the pod mounts the volume, has it as a device, or reads a file of it.
func Used(pod *corev1.Pod, name string) bool {
	uses := func(c *corev1.Container) bool { return mounts(c, name) || devices(c, name) || reads(c, name) }
	return slices.ContainsFunc(spec.Containers(&pod.Spec), uses) ||
		slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool {
			return uses((*corev1.Container)(&c.EphemeralContainerCommon))
		})
}

func reads(c *corev1.Container, name string) bool {
	return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil && e.ValueFrom.FileKeyRef.VolumeName == name
	})
}

// firstUser returns the first container that uses a volume; empty: there is none.
func firstUser(pod *corev1.Pod, volume string, uses func(c *corev1.Container, name string) bool) string {
	for _, c := range spec.Containers(&pod.Spec) {
		if uses(c, volume) {
			return c.Name
		}
	}
	return ""
}

// Devices returns the block devices of a container; paths are those of the pod's volumes.
func Devices(pod *corev1.Pod, c *corev1.Container, paths map[string]string) []*cri.Device {
	var out []*cri.Device
	for _, d := range c.VolumeDevices {
		permissions := "mrw"
		if api.All().ReadOnly(pod, d.Name) {
			permissions = "r"
		}
		out = append(out, &cri.Device{ContainerPath: d.DevicePath, HostPath: paths[d.Name], Permissions: permissions})
	}
	return out
}
