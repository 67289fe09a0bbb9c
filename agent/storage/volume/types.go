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
)

// Type is all that the node knows of one type of volume. It has Files or SetUp; a
// function is called only with a volume of the type. Nothing of a type is needed to
// unmount it: Set.Unmount goes by what is on the disk.
type Type struct {
	// Plugin is upstream's name of what sets up the volume, for metrics and the folder
	// below that of the pod; empty: only the PersistentVolume says it, or nothing lies
	// there.
	Plugin string
	// Files are what the volume shows. They are read again when the pod, or something
	// that it refers to, has changed.
	Files func(ctx context.Context, s *Set, v *corev1.Volume, facts env.Facts) (Files, error)
	// Secret says that the files must stay off the disk; nil: they need not.
	Secret func(v *corev1.VolumeSource) bool
	// SetUp makes the volume if it is not there and returns where it lies. It may be
	// called again. *plugin is Plugin, and may become what is behind the volume.
	SetUp func(ctx context.Context, s *Set, v *corev1.Volume, facts env.Facts, plugin *string) (string, error)
	// ReadOnly says whether containers may only ever read the volume; nil: they may write.
	ReadOnly func(v *corev1.VolumeSource) bool
	// Usage says whether what the volume holds counts as the pod's usage of the node's
	// disk, and up to which limit; nil: it does not, or there is no limit.
	Usage func(v *corev1.VolumeSource) (limit *resource.Quantity, counts bool)
}

// Types are types of volumes by their names: the JSON names of the fields of
// corev1.VolumeSource. The node mounts no others.
type Types map[string]Type

// All are the types that the node mounts. The caller must not modify them.
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

// Persistent is likewise of one type of PersistentVolume behind a claim.
type Persistent struct {
	Plugin string
	// Path is the path of the volume on this machine.
	Path func(v *corev1.PersistentVolumeSource) string
	// SetUp makes a volume with a file system usable and returns where it lies.
	SetUp func(s *Set, pv *corev1.PersistentVolume, v *corev1.Volume, pod *corev1.Pod) (string, error)
}

// persistent are the types of PersistentVolumes that the node mounts, by their names in
// corev1.PersistentVolumeSource.
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

// of is the type of a volume.
func (t Types) of(v *corev1.Volume) Type { return t[typeOf(&v.VolumeSource)] }

// Plugin is upstream's name of what sets up a volume; empty for a claim, which only its
// PersistentVolume tells, and for what nothing here sets up.
func (t Types) Plugin(v *corev1.Volume) string { return t.of(v).Plugin }

// Usage says whether what a volume holds counts as the pod's usage of the node's disk,
// and up to which limit; nil: there is none.
func (t Types) Usage(v *corev1.Volume) (limit *resource.Quantity, counts bool) {
	if f := t.of(v).Usage; f != nil {
		return f(&v.VolumeSource)
	}
	return nil, false
}

// Dir is where a volume lies below the folder of its pod, if it lies there.
func (t Types) Dir(pod string, v *corev1.Volume) string { return folder(pod, t.Plugin(v), v.Name) }

// folder is that of a volume, as kubelet lays them out.
func folder(pod, plugin, name string) string {
	return filepath.Join(pod, "volumes", strings.ReplaceAll(plugin, "/", "~"), name)
}

// readOnly says whether containers may only ever read a volume: what comes from the
// API is changed there.
func (t Types) readOnly(pod *corev1.Pod, name string) bool {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if i < 0 {
		return false
	}
	f := t.of(&pod.Spec.Volumes[i]).ReadOnly
	return f != nil && f(&pod.Spec.Volumes[i].VolumeSource)
}

// typeOf is the JSON name of the first field that is set in a struct of alternatives;
// empty: none is.
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

// unsupported words why a volume fails to mount, with the words that users of kubelet
// look for; what are the volumes, of a type without an entry.
func unsupported(what, name string) error {
	if name == "" {
		return fmt.Errorf("no volume plugin matched: the %s has no type", strings.TrimSuffix(what, "s"))
	}
	return fmt.Errorf("no volume plugin matched: %s of type %s are not supported by this node", what, name)
}
