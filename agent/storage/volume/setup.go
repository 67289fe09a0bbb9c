package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host/mount"
	"monopod/agent/podapi/env"
	"monopod/agent/storage/tree"
	api "monopod/apiserver/kit/volume"
)

// setup sets up one volume of a Set. The methods for a type of volume are in the file of the type.
type setup struct {
	*Set
	facts  env.Facts
	plugin string // of the volume, or of the PersistentVolume behind it
}

var _ api.Node = (*setup)(nil)

// Pod implements api.Node.
func (s *setup) Pod() *corev1.Pod { return s.facts.Pod }

// Folder implements api.Node.
func (s *setup) Folder(v *corev1.Volume) (string, error) {
	dir := s.dir(v)
	return dir, diskFolder(dir)
}

// volume sets up a volume by its type and returns its path.
func (s *setup) volume(ctx context.Context, v *corev1.Volume) (string, error) {
	name, of := s.types().Of(v)
	if of.SetUp == nil {
		return "", unsupported("volumes", name)
	}
	s.plugin = of.Plugin
	return of.SetUp(s, ctx, v)
}

// dir returns the folder of a volume.
func (s *setup) dir(v *corev1.Volume) string { return folder(s.Set.Dir, s.plugin, v.Name) }

// write replaces the files of a volume. make creates its folder.
func (s *setup) write(v *corev1.Volume, files tree.Files, make func(dir string) error) (string, error) {
	dir := s.dir(v)
	if err := make(dir); err != nil {
		return "", err
	}
	return dir, tree.WriteAtomic(dir, files, fsGroup(s.facts.Pod))
}

func diskFolder(dir string) error { return os.MkdirAll(dir, 0o755) }

// tmpfs mounts a tmpfs on a folder, for content that must not be on the disk. Without the permission to mount, it
// creates a folder on the disk.
func (s *setup) tmpfs(dir string) error {
	err := s.mountOnce(dir, func() error { return s.Mounter.Tmpfs(dir, mount.Tmpfs{Mode: 0o755, Plain: true}) })
	if errors.Is(err, os.ErrPermission) {
		return diskFolder(dir)
	}
	return err
}

// Dir returns the path of a volume below the folder of its pod.
func Dir(pod string, v *corev1.Volume) string { return folder(pod, api.All().Plugin(v), v.Name) }

// folder returns the path of a volume in kubelet's layout.
func folder(pod, plugin, name string) string {
	return filepath.Join(pod, "volumes", strings.ReplaceAll(plugin, "/", "~"), name)
}

// unsupported returns the error for a type that the node does not mount, in kubelet's words; what is
// "volumes" or "PersistentVolumes".
func unsupported(what, name string) error {
	if name == "" {
		return fmt.Errorf("no volume plugin matched: the %s has no type", strings.TrimSuffix(what, "s"))
	}
	return fmt.Errorf("no volume plugin matched: %s of type %s are not supported by this node", what, name)
}
