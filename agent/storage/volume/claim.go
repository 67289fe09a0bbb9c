package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"monopod/agent/storage/mount"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// claim finds where the volume behind a claim lies: it is on this machine, so only a
// device is mounted. The pod's group is given a volume once, not at each refresh.
func (s *Set) claim(ctx context.Context, v *corev1.Volume, pod *corev1.Pod, plugin *string) (string, error) {
	if s.Claim == nil {
		return "", errors.New("claims are not known here")
	}
	pv, err := s.Claim(ctx, v)
	if err != nil {
		return "", err
	}
	*plugin = pluginBehind(pv)
	if m := pv.Spec.VolumeMode; m != nil && *m == corev1.PersistentVolumeBlock {
		return blockDevice(pv, pod, v.Name)
	}
	if name := usedAs(pod, v.Name, devices); name != "" {
		return "", fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices of container %s", v.Name, name)
	}
	switch {
	case pv.Spec.HostPath != nil: // which is nobody's to change the group of
		return pv.Spec.HostPath.Path, hostPath(pv.Spec.HostPath)
	case pv.Spec.Local != nil:
		return s.local(pv, v, pod)
	}
	return "", unsupportedSource(&pv.Spec.PersistentVolumeSource)
}

// local is a folder of the machine, or a device with a file system.
func (s *Set) local(pv *corev1.PersistentVolume, v *corev1.Volume, pod *corev1.Pod) (dir string, err error) {
	path := pv.Spec.Local.Path
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("path %q does not exist", path)
	case err != nil:
		return "", err
	case isKind(info.Mode(), corev1.HostPathBlockDev):
		dir, err = s.device(pv, pod, v.Name)
	case !info.IsDir():
		return "", fmt.Errorf("%q is neither a folder nor a block device", path)
	default:
		dir, err = filepath.EvalSymlinks(path)
	}
	if err != nil || s.Have[v.Name] != "" || pod.Spec.SecurityContext == nil {
		return dir, err
	}
	readOnly := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
	return dir, ignoreRights(ApplyFSGroup(dir, fsGroup(pod), readOnly, pod.Spec.SecurityContext.FSGroupChangePolicy))
}

// device mounts a local volume that is a device below the pod's folder, where each
// pod that uses it has a mount of its own. It can be written to: containers that may
// only read see it so, and another pod's may write.
func (s *Set) device(pv *corev1.PersistentVolume, pod *corev1.Pod, name string) (string, error) {
	dir := s.path("local-volume", name)
	d := mount.Device{Path: pv.Spec.Local.Path, Options: pv.Spec.MountOptions, ReadOnly: readOnly(pod, name)}
	if pv.Spec.Local.FSType != nil {
		d.FSType = *pv.Spec.Local.FSType
	}
	return dir, s.mountOnce(dir, func() error { return s.Mounter.Device(dir, d) })
}

// blockDevice is a device of the machine that containers get as it is.
func blockDevice(pv *corev1.PersistentVolume, pod *corev1.Pod, name string) (string, error) {
	if c := usedAs(pod, name, mounts); c != "" {
		return "", fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts of container %s", name, c)
	}
	var path string
	switch {
	case pv.Spec.Local != nil:
		path = pv.Spec.Local.Path
	case pv.Spec.HostPath != nil:
		path = pv.Spec.HostPath.Path
	default:
		return "", unsupportedSource(&pv.Spec.PersistentVolumeSource)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(real)
	if err == nil && !isKind(info.Mode(), corev1.HostPathBlockDev) {
		err = fmt.Errorf("%s is not a block device", path)
	}
	return real, err
}

func devices(c *corev1.Container, name string) bool {
	return slices.ContainsFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == name })
}

func mounts(c *corev1.Container, name string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == name })
}

// usedAs is the first container that uses a volume so; empty: none does.
func usedAs(pod *corev1.Pod, volume string, so func(c *corev1.Container, name string) bool) string {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if so(&list[i], volume) {
				return list[i].Name
			}
		}
	}
	return ""
}

// Devices are the block devices that a container gets of the pod's volumes, which
// lie at paths.
func Devices(pod *corev1.Pod, c *corev1.Container, paths map[string]string) []*cri.Device {
	var out []*cri.Device
	for _, d := range c.VolumeDevices {
		permissions := "mrw"
		if readOnly(pod, d.Name) {
			permissions = "r"
		}
		out = append(out, &cri.Device{ContainerPath: d.DevicePath, HostPath: paths[d.Name], Permissions: permissions})
	}
	return out
}

// unsupportedSource names a kind of PersistentVolume that cannot be had here.
func unsupportedSource(v *corev1.PersistentVolumeSource) error {
	value := reflect.ValueOf(*v)
	for i := range value.NumField() {
		if !value.Field(i).IsNil() {
			return fmt.Errorf("no volume plugin matched: PersistentVolumes of type %s are not supported by this node", nameOf(value.Type().Field(i)))
		}
	}
	return errors.New("no volume plugin matched: the PersistentVolume has no type")
}
