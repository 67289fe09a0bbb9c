package volume

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/agent/pod/env"
	"monopod/agent/storage/tree"
)

// Type is all that the node knows about one type of volume. It has Files or SetUp. Its
// functions are called only with a volume of the type. Unmounting needs nothing of a type:
// Set.Unmount uses what is on the disk.
type Type struct {
	// Plugin is upstream's name of the volume plugin, for metrics and the volume's folder;
	// empty: the PersistentVolume decides, or the volume has no folder.
	Plugin string
	// Files returns the content of the volume. It is called again when the pod, or an
	// object that it refers to, has changed.
	Files func(ctx context.Context, s *Set, v *corev1.Volume, facts env.Facts) (tree.Files, error)
	// Secret reports whether the files must not be on the disk; nil: never.
	Secret func(v *corev1.VolumeSource) bool
	// SetUp creates the volume unless it exists and returns its path. It may be called
	// again. *plugin is Plugin; SetUp may set it to the plugin of a PersistentVolume.
	SetUp func(ctx context.Context, s *Set, v *corev1.Volume, facts env.Facts, plugin *string) (string, error)
	// ReadOnly reports whether containers may only read the volume; nil: they may write.
	ReadOnly func(v *corev1.VolumeSource) bool
	// Usage reports whether the volume counts as ephemeral storage of the pod, and its size
	// limit; a nil limit: none; nil: it does not count.
	Usage func(v *corev1.VolumeSource) (limit *resource.Quantity, counts bool)
}

// Types are types of volumes by their names: the JSON names of the fields of
// corev1.VolumeSource. The node mounts no others.
type Types map[string]Type

// All returns the types that the node mounts. The caller must not modify them.
func All() Types { return all }

var all = Types{
	"configMap":             {Plugin: plugins + "configmap", Files: configMap, ReadOnly: always},
	"downwardAPI":           {Plugin: plugins + "downward-api", Files: downwardAPI, ReadOnly: always},
	"emptyDir":              {Plugin: emptyDirPlugin, SetUp: emptyDir, Usage: emptyDirUsage},
	"ephemeral":             {SetUp: claim},
	"hostPath":              {Plugin: hostPathPlugin, SetUp: hostPath},
	"image":                 {SetUp: image},
	"persistentVolumeClaim": {SetUp: claim, ReadOnly: func(v *corev1.VolumeSource) bool { return v.PersistentVolumeClaim.ReadOnly }},
	"projected":             {Plugin: plugins + "projected", Files: projected, Secret: holdsSecrets, ReadOnly: always},
	"secret":                {Plugin: plugins + "secret", Files: secret, Secret: always, ReadOnly: always},
}

// Persistent is all that the node knows about one type of PersistentVolume.
type Persistent struct {
	Plugin string
	// Path is the path of the volume on this machine.
	Path func(v *corev1.PersistentVolumeSource) string
	// SetUp mounts a volume with a file system and returns its path.
	SetUp func(s *Set, pv *corev1.PersistentVolume, v *corev1.Volume, pod *corev1.Pod) (string, error)
}

// AllPersistent returns the types of PersistentVolumes that the node mounts, by the JSON names
// of the fields of corev1.PersistentVolumeSource. The caller must not modify them.
func AllPersistent() map[string]Persistent { return persistent }

var persistent = map[string]Persistent{
	"hostPath": {hostPathPlugin, func(v *corev1.PersistentVolumeSource) string { return v.HostPath.Path }, hostPathBehind},
	"local":    {localPlugin, func(v *corev1.PersistentVolumeSource) string { return v.Local.Path }, (*Set).local},
}

const (
	plugins        = "kubernetes.io/"
	emptyDirPlugin = plugins + "empty-dir"
	hostPathPlugin = plugins + "host-path"
	localPlugin    = plugins + "local-volume"
)

func always(*corev1.VolumeSource) bool { return true }

// of returns the type of a volume.
func (t Types) of(v *corev1.Volume) Type { return t[typeOf(&v.VolumeSource)] }

// Plugin returns upstream's name of the volume plugin; empty for a claim, whose
// PersistentVolume decides, and for types that the node does not mount.
func (t Types) Plugin(v *corev1.Volume) string { return t.of(v).Plugin }

// Usage reports whether a volume counts as ephemeral storage of the pod, and its size limit;
// nil: none.
func (t Types) Usage(v *corev1.Volume) (limit *resource.Quantity, counts bool) {
	if f := t.of(v).Usage; f != nil {
		return f(&v.VolumeSource)
	}
	return nil, false
}

// Dir returns the path of a volume below the folder of its pod, for types that have one.
func (t Types) Dir(pod string, v *corev1.Volume) string { return folder(pod, t.Plugin(v), v.Name) }

// folder returns the path of a volume in kubelet's layout.
func folder(pod, plugin, name string) string {
	return filepath.Join(pod, "volumes", strings.ReplaceAll(plugin, "/", "~"), name)
}

// readOnly reports whether containers may only read a volume, as those with content of the
// API.
func (t Types) readOnly(pod *corev1.Pod, name string) bool {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if i < 0 {
		return false
	}
	f := t.of(&pod.Spec.Volumes[i]).ReadOnly
	return f != nil && f(&pod.Spec.Volumes[i].VolumeSource)
}

// typeOf returns the JSON name of the first field that is set in a union; empty: none is.
func typeOf[T any](source *T) string {
	value := reflect.ValueOf(source).Elem()
	for i := range value.NumField() {
		if !value.Field(i).IsNil() {
			name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}

// unsupported returns the error for a type without an entry, in kubelet's words; what is
// "volumes" or "PersistentVolumes".
func unsupported(what, name string) error {
	if name == "" {
		return fmt.Errorf("no volume plugin matched: the %s has no type", strings.TrimSuffix(what, "s"))
	}
	return fmt.Errorf("no volume plugin matched: %s of type %s are not supported by this node", what, name)
}
