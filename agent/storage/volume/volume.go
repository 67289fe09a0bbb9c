// Package volume mounts and unmounts the volumes of pods.
//
// Set is the volumes of one pod in kubelet's layout, <pod>/volumes/<plugin>/<name>. Prepare is idempotent: called
// again, it updates the files from ConfigMaps, Secrets and the pod's fields, and writes nothing if nothing has changed.
package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host/mount"
	"monopod/agent/podapi/env"
	"monopod/agent/storage/csi"
	api "monopod/apiserver/kit/volume"
)

// Mounter mounts and unmounts on this machine.
type Mounter interface {
	// Tmpfs mounts an empty tmpfs on dir.
	Tmpfs(dir string, o mount.Tmpfs) error
	// Huge mounts a file system of huge pages on dir.
	Huge(dir string, o mount.Tmpfs) error
	// Device mounts the file system of a block device on dir, and creates one on an empty device.
	Device(dir string, d mount.Device) error
	// Bind mounts the open file or folder fd on target, which is empty and of the same type, and
	// returns the path at which it is visible.
	Bind(fd int, target string) (path string, err error)
	// Share makes dir a shared mount, which propagates mounts to and from containers.
	Share(dir string) error
	// ShareTree does that with a folder that has folders of many pods; UnshareTree undoes it.
	ShareTree(dir string) error
	UnshareTree(dir string) error
	// Mounted reports whether something is mounted on dir.
	Mounted(dir string) (bool, error)
	// Unmount unmounts the topmost mount of dir, even if it is in use; no mount is not an error.
	Unmount(dir string) error
}

var (
	_ Mounter = mount.Kernel{}
	_ Mounter = mount.Folders{}
)

// Drivers are the CSI drivers of the node.
type Drivers interface {
	// SetUp makes a driver mount a volume, and returns where. It may be called again.
	SetUp(ctx context.Context, v csi.Volume) (path string, err error)
	// TearDown makes the drivers unmount all volumes of the pod with that folder. It may be called again.
	TearDown(ctx context.Context, dir string) error
}

// Set is the volumes of one pod.
type Set struct {
	Dir     string // the pod's folder
	Data    string // the data folder
	Mounter Mounter
	// Drivers mount the volumes of CSI drivers; nil: they are not supported.
	Drivers Drivers
	Source  env.Source
	// Claim returns the PersistentVolume of the claim, or an error; nil: claims are not supported.
	Claim func(ctx context.Context, v *corev1.Volume) (*corev1.PersistentVolume, error)
	// Have contains the paths of the volumes that an earlier Prepare has set up for this pod.
	Have map[string]string
	// Images are the IDs of the images of image volumes, by volume name.
	Images map[string]string
	// Saw is called after each attempt to set up a volume; nil: no calls.
	Saw Observer
	// Token returns the token of a projection; nil: tokens are not supported.
	Token func(ctx context.Context, p *corev1.ServiceAccountTokenProjection) (string, error)
	// Certificate returns the key and the certificate of a projection; nil: they are not supported.
	Certificate func(ctx context.Context, at Source, p *corev1.PodCertificateProjection) (Bundle, error)
	// Bundles returns the ClusterTrustBundle with a name, if it exists, or else all of a signer; nil: they are not
	// supported.
	Bundles func(ctx context.Context, name, signer string) ([]*certificatesv1.ClusterTrustBundle, error)
	// Types are the types of volumes; nil: api.All.
	Types api.Types
}

// Observer gets the volume, the name of its plugin, the duration of the setup and its error.
type Observer func(volume, plugin string, took time.Duration, err error)

// Prepare sets up the volumes that containers of the pod use, and returns their paths by name.
func (s *Set) Prepare(ctx context.Context, facts env.Facts) (map[string]string, error) {
	paths := map[string]string{}
	var errs []error
	for i := range facts.Pod.Spec.Volumes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		v := &facts.Pod.Spec.Volumes[i]
		if !Used(facts.Pod, v.Name) { // as upstream
			continue
		}
		began, setup := time.Now(), setup{Set: s, facts: facts}
		path, err := setup.volume(ctx, v)
		if s.Saw != nil && setup.plugin != "" {
			s.Saw(v.Name, setup.plugin, time.Since(began), err)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err))
			continue
		}
		paths[v.Name] = path
	}
	return paths, errors.Join(errs...)
}

func (s *Set) types() api.Types {
	if s.Types == nil {
		return api.All()
	}
	return s.Types
}

func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// Unmount unmounts the pod's volumes and keeps the rest of its folder. It never removes the content of a mount: if an
// unmount fails, Unmount returns an error and the next call retries. It finds the mounts by their paths, so that it
// also unmounts those of an earlier process.
func (s *Set) Unmount(ctx context.Context) error {
	if err := mount.RemoveAll(filepath.Join(s.Dir, subPathsDir), s.Mounter); err != nil {
		return err
	}
	if s.Drivers != nil {
		if err := s.Drivers.TearDown(ctx, s.Dir); err != nil {
			return err
		}
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

// Teardown unmounts the volumes and removes the pod's folder.
func (s *Set) Teardown(ctx context.Context) error {
	if err := s.Unmount(ctx); err != nil {
		return err
	}
	return mount.RemoveAll(s.Dir, s.Mounter)
}
