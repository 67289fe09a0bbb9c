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

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/env"
)

// Mounter mounts and unmounts on this machine.
type Mounter interface {
	// Tmpfs mounts an empty tmpfs on dir; size 0 is the kernel's default.
	Tmpfs(dir string, size int64) error
	// Mounted says whether something is mounted on dir.
	Mounted(dir string) (bool, error)
	Unmount(dir string) error
}

// Set is the volumes of one pod.
type Set struct {
	Dir     string // the pod's folder
	Mounter Mounter
	Source  env.Source
	// Token is the token that a projection asks for; nil: there are none.
	Token func(ctx context.Context, p *corev1.ServiceAccountTokenProjection) (string, error)
}

// Prepare makes every volume of the pod and returns where each lies, by name.
func (s *Set) Prepare(ctx context.Context, facts env.Facts) (map[string]string, error) {
	paths := map[string]string{}
	var errs []error
	for i := range facts.Pod.Spec.Volumes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		v := &facts.Pod.Spec.Volumes[i]
		path, err := s.one(ctx, v, facts)
		if err != nil {
			errs = append(errs, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err))
			continue
		}
		paths[v.Name] = path
	}
	return paths, errors.Join(errs...)
}

func (s *Set) path(kind, name string) string {
	return filepath.Join(s.Dir, "volumes", "kubernetes.io~"+kind, name)
}

func (s *Set) one(ctx context.Context, v *corev1.Volume, facts env.Facts) (string, error) {
	switch {
	case v.HostPath != nil:
		return v.HostPath.Path, hostPath(v.HostPath)
	case v.EmptyDir != nil:
		return s.emptyDir(v.Name, v.EmptyDir, facts.Pod)
	case v.ConfigMap != nil:
		files, err := configMapFiles(v.ConfigMap, s.Source)
		return s.files("configmap", v.Name, files, err, facts.Pod)
	case v.Secret != nil:
		files, err := secretFiles(v.Secret, s.Source)
		return s.secret("secret", v.Name, files, err, facts.Pod)
	case v.DownwardAPI != nil:
		files, err := downwardFiles(v.DownwardAPI.Items, mode(v.DownwardAPI.DefaultMode), facts)
		return s.files("downward-api", v.Name, files, err, facts.Pod)
	case v.Projected != nil:
		files, err := s.projectedFiles(ctx, v.Projected, facts)
		if holdsSecrets(v.Projected) {
			return s.secret("projected", v.Name, files, err, facts.Pod)
		}
		return s.files("projected", v.Name, files, err, facts.Pod)
	}
	return "", errors.New("this kind of volume is not supported")
}

func (s *Set) files(kind, name string, files Files, err error, pod *corev1.Pod) (string, error) {
	if err != nil {
		return "", err
	}
	dir := s.path(kind, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, WriteAtomic(dir, files, fsGroup(pod))
}

// secret keeps the files off the disk where the machine lets us mount.
func (s *Set) secret(kind, name string, files Files, err error, pod *corev1.Pod) (string, error) {
	if err != nil {
		return "", err
	}
	dir := s.path(kind, name)
	if err := s.tmpfs(dir, 0); err != nil && !errors.Is(err, os.ErrPermission) {
		return "", err
	}
	return s.files(kind, name, files, nil, pod)
}

func (s *Set) emptyDir(name string, v *corev1.EmptyDirVolumeSource, pod *corev1.Pod) (string, error) {
	dir := s.path("empty-dir", name)
	switch v.Medium {
	case corev1.StorageMediumDefault:
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return "", err
		}
	case corev1.StorageMediumMemory:
		var size int64
		if v.SizeLimit != nil {
			size = v.SizeLimit.Value()
		}
		if err := s.tmpfs(dir, size); err != nil {
			return "", fmt.Errorf("emptyDir in memory: cannot mount a tmpfs: %w", err)
		}
	default:
		return "", fmt.Errorf("unknown storage medium %q", v.Medium)
	}
	return dir, open(dir, fsGroup(pod))
}

// open gives a fresh emptyDir to everybody, whatever the umask, and to the
// pod's group.
func open(dir string, group *int64) error {
	mode := os.FileMode(0o777)
	if group != nil {
		if err := os.Chown(dir, -1, int(*group)); err != nil {
			return err
		}
		mode |= os.ModeSetgid
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode()&(os.ModePerm|os.ModeSetgid) == mode {
		return err
	}
	return os.Chmod(dir, mode)
}

func (s *Set) tmpfs(dir string, size int64) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	mounted, err := s.Mounter.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	return s.Mounter.Tmpfs(dir, size)
}

func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// Unmount takes the pod's volumes away and leaves the rest of its folder. It
// never reaches through a mount: what cannot be unmounted stays, with an error.
func (s *Set) Unmount() error {
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
	return os.RemoveAll(volumes)
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
	return os.RemoveAll(s.Dir)
}

// Mounts are the mounts of a container: its volumeMounts, whose volumes lie at
// paths, expanded by vars where they say subPathExpr.
func Mounts(c *corev1.Container, paths map[string]string, vars []env.Var) ([]*cri.Mount, error) {
	var out []*cri.Mount
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		host, ok := paths[m.Name]
		if !ok {
			return nil, fmt.Errorf("%w: volume %q of a volumeMount does not exist", env.ErrConfig, m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = env.ExpandAll([]string{m.SubPathExpr}, vars)[0]
		}
		if sub != "" {
			var err error
			if host, err = subPath(host, sub); err != nil {
				return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", m.Name, c.Name, err)
			}
		}
		out = append(out, &cri.Mount{
			ContainerPath: m.MountPath, HostPath: host, Readonly: m.ReadOnly, Propagation: propagation(m.MountPropagation),
		})
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

// subPath makes sub within volume and returns where it really is; a symlink that
// leads out of the volume is an error.
func subPath(volume, sub string) (string, error) {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if _, err := root.Stat(sub); errors.Is(err, os.ErrNotExist) {
		err = root.MkdirAll(sub, 0o750)
		if err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(filepath.Join(volume, sub))
}
