// Package volume brings a pod's volumes to the disk and takes them away again.
//
// Set is the volumes of one pod below one folder, <pod>/volumes/<kind>/<name>
// as kubelet lays them out. Prepare is idempotent: called again it refreshes what
// comes from ConfigMaps, Secrets and the pod itself, and writes nothing when
// nothing changed.
package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/env"
	"monopod/agent/storage/mount"
)

// Mounter mounts and unmounts on this machine.
type Mounter interface {
	// Tmpfs mounts an empty tmpfs on dir.
	Tmpfs(dir string, o mount.Tmpfs) error
	// Huge mounts a file system of huge pages on dir.
	Huge(dir string, o mount.Tmpfs) error
	// Device mounts the file system on a block device on dir, and makes one if there
	// is nothing on the device.
	Device(dir string, d mount.Device) error
	// Bind shows the file or folder that is open as fd at target, an empty one of
	// its kind, and returns where it is to be seen: target, or where it lies.
	Bind(fd int, target string) (path string, err error)
	// Share makes dir a mount through which others reach containers that show it,
	// and back.
	Share(dir string) error
	// Mounted says whether something is mounted on dir.
	Mounted(dir string) (bool, error)
	// Unmount takes the topmost mount off dir, though it may be in use; nothing
	// there is no error.
	Unmount(dir string) error
}

var (
	_ Mounter = mount.Kernel{}
	_ Mounter = mount.Folders{}
)

// Set is the volumes of one pod.
type Set struct {
	Dir     string // the pod's folder
	Mounter Mounter
	Source  env.Source
	// Claim finds the volume bound to the claim behind one of the pod's, or says why it
	// cannot be had; nil: there are none.
	Claim func(ctx context.Context, v *corev1.Volume) (*corev1.PersistentVolume, error)
	// Have are volumes that Prepare has made before, for this pod, and where.
	Have map[string]string
	// Images are those that image volumes show, by the volumes' names: their IDs.
	Images map[string]string
	// Saw, unless it is nil, hears of each volume that was set up, or was to be.
	Saw Observer
	// Token is the token that a projection asks for; nil: there are none.
	Token func(ctx context.Context, p *corev1.ServiceAccountTokenProjection) (string, error)
	// Types are those that can be mounted; nil: All.
	Types Types
}

// Observer gets which volume, of which of upstream's plugins, was set up, how long
// that took and why it failed.
type Observer func(volume, plugin string, took time.Duration, err error)

// Prepare makes every volume of the pod and returns where each lies, by name.
func (s *Set) Prepare(ctx context.Context, facts env.Facts) (map[string]string, error) {
	paths := map[string]string{}
	var errs []error
	for i := range facts.Pod.Spec.Volumes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		v := &facts.Pod.Spec.Volumes[i]
		began, plugin := time.Now(), s.types().Plugin(v)
		path, err := s.one(ctx, v, facts, &plugin)
		if s.Saw != nil && plugin != "" {
			s.Saw(v.Name, plugin, time.Since(began), err)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err))
			continue
		}
		paths[v.Name] = path
	}
	return paths, errors.Join(errs...)
}

// one makes a volume; plugin becomes that of what is behind a claim.
func (s *Set) one(ctx context.Context, v *corev1.Volume, facts env.Facts, plugin *string) (string, error) {
	t := s.types().of(v)
	switch {
	case t.SetUp != nil:
		return t.SetUp(ctx, s, v, facts, plugin)
	case t.Files == nil:
		return "", unsupported("volumes", typeOf(&v.VolumeSource))
	}
	files, err := t.Files(ctx, s, v, facts)
	if err != nil {
		return "", err
	}
	dir := folder(s.Dir, t.Plugin, v.Name)
	if t.Secret != nil && t.Secret(&v.VolumeSource) {
		err = s.offDisk(dir)
	} else {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", err
	}
	return dir, WriteAtomic(dir, files, fsGroup(facts.Pod))
}

func (s *Set) types() Types {
	if s.Types == nil {
		return all
	}
	return s.Types
}

// offDisk makes a folder in memory where the machine lets us mount.
func (s *Set) offDisk(dir string) error {
	err := s.mountOnce(dir, func() error { return s.Mounter.Tmpfs(dir, mount.Tmpfs{Mode: 0o755, Plain: true}) })
	if errors.Is(err, os.ErrPermission) {
		return os.MkdirAll(dir, 0o755)
	}
	return err
}

func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// Unmount takes the pod's volumes away and leaves the rest of its folder. It
// never reaches through a mount: what cannot be unmounted stays, with an error, and
// is tried again with the next call. What is there is read from the disk, so that it
// does not matter who mounted it.
func (s *Set) Unmount() error {
	if err := mount.RemoveAll(filepath.Join(s.Dir, subPathsDir), s.Mounter); err != nil {
		return err
	}
	volumes := filepath.Join(s.Dir, "volumes")
	dirs, err := filepath.Glob(filepath.Join(volumes, "*", "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := s.unmount(dir); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	return mount.RemoveAll(volumes, s.Mounter)
}

func (s *Set) unmount(dir string) error {
	mounted, err := s.Mounter.Mounted(dir)
	if err != nil || !mounted {
		return err
	}
	return s.Mounter.Unmount(dir)
}

// Teardown is Unmount, and removes the pod's folder too.
func (s *Set) Teardown() error {
	if err := s.Unmount(); err != nil {
		return err
	}
	return mount.RemoveAll(s.Dir, s.Mounter)
}
