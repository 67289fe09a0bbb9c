// Package volume describes the types of pod volumes for the API: an entry of All has the defaults,
// validation, warnings and references of one type. The entry of the same name in
// agent/storage/volume mounts the type.
package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/check"
)

// Type is all that the API says about one type of volume. Its functions are called only with a
// source of the type; they may be nil.
type Type struct {
	// Default sets the defaults of the source.
	Default func(v *corev1.VolumeSource)
	// Validate returns the errors of the source; at is the path of its type.
	Validate func(v *corev1.VolumeSource, at *field.Path) field.ErrorList
	// Warnings returns warnings about a valid volume; at is the path of its type.
	Warnings func(v *corev1.Volume, at *field.Path) []string
	// References calls add for the objects of the pod's namespace that the node reads to mount the
	// volume: a resource, as in a URL, and a name.
	References func(pod *corev1.Pod, v *corev1.Volume, add func(resource, name string))
	// Block: containers may use the volume as a raw device.
	Block bool
	// Deprecated is a warning to users of the type.
	Deprecated string
}

// Types are types of volumes by the JSON names of the fields of corev1.VolumeSource. A type
// without an entry has no defaults and is always valid.
type Types map[string]Type

// All returns the types of volumes. The caller must not modify them.
func All() Types { return all }

var all = Types{
	"configMap": {Default: configMapDefault, Validate: configMapErrors, Warnings: configMapWarnings, References: configMapReferences},
	"csi":       {Validate: csiErrors, References: csiReferences},
	"emptyDir":  {Validate: emptyDirErrors},
	"ephemeral": {Default: ephemeralDefault, Validate: ephemeralErrors, Warnings: ephemeralWarnings, References: claimReferences, Block: true},
	"hostPath":  {Default: hostPathDefault, Validate: func(v *corev1.VolumeSource, at *field.Path) field.ErrorList { return HostPathErrors(v.HostPath, at) }},
	"image":     {Default: imageDefault, Validate: imageErrors},
	"nfs":       {Validate: func(v *corev1.VolumeSource, at *field.Path) field.ErrorList { return NFSErrors(v.NFS, at) }},
	"projected": {Default: projectedDefault, Validate: projectedErrors, Warnings: projectedWarnings, References: projectedReferences},
	"secret":    {Default: secretDefault, Validate: secretErrors, Warnings: secretWarnings, References: secretReferences},
	"downwardAPI": {
		Default: downwardAPIDefault, Validate: downwardAPIErrors, Warnings: downwardAPIWarnings,
	},
	"persistentVolumeClaim": {Validate: claimErrors, References: claimReferences, Block: true},

	"cephfs":               {Deprecated: goneSince(28, 31)},
	"flocker":              {Deprecated: goneSince(22, 25)},
	"gitRepo":              {Deprecated: "deprecated in v1.11, and disabled by default in v1.33+"},
	"glusterfs":            {Deprecated: goneSince(25, 26)},
	"photonPersistentDisk": {Deprecated: goneSince(11, 16)},
	"quobyte":              {Deprecated: goneSince(22, 25)},
	"rbd":                  {Deprecated: goneSince(28, 31)},
	"scaleIO":              {Deprecated: goneSince(16, 22)},
	"storageos":            {Deprecated: goneSince(22, 25)},
}

// goneSince returns upstream's warning with two minor versions of Kubernetes.
func goneSince(deprecated, gone int) string {
	return fmt.Sprintf("deprecated in v1.%d, non-functional in v1.%d+", deprecated, gone)
}

// Default sets the defaults of a source; one without a type becomes an emptyDir.
func (t Types) Default(v *corev1.VolumeSource) {
	set := check.UnionMembers(*v)
	if len(set) == 0 {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	for _, name := range set {
		if f := t[name].Default; f != nil {
			f(v)
		}
	}
}

// Validate returns the errors of the volumes of a pod at path. Of several types in one source,
// which is an error, it validates the first.
func (t Types) Validate(volumes []corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range volumes {
		v, at := &volumes[i], path.Index(i)
		errs = append(errs, check.Named(at.Child("name"), v.Name, validation.IsDNS1123Label)...)
		if v.Name != "" && seen[v.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		}
		seen[v.Name] = true
		errs = append(errs, check.Union(at, v.VolumeSource, "volume type")...)
		if name, of := t.of(v); of.Validate != nil {
			errs = append(errs, of.Validate(&v.VolumeSource, at.Child(name))...)
		}
	}
	return errs
}

// Warnings returns warnings about the volumes at path.
func (t Types) Warnings(volumes []corev1.Volume, path *field.Path) []string {
	var lines []string
	for i := range volumes {
		v := &volumes[i]
		name, of := t.of(v)
		at := path.Index(i).Child(name)
		if of.Deprecated != "" {
			lines = append(lines, at.String()+": "+of.Deprecated)
		}
		if of.Warnings != nil {
			lines = append(lines, of.Warnings(v, at)...)
		}
	}
	return lines
}

// Block reports whether containers may use the volume as a raw device.
func (t Types) Block(v *corev1.Volume) bool {
	_, of := t.of(v)
	return of.Block
}

// of returns the type of a volume and its name; of several the first.
func (t Types) of(v *corev1.Volume) (string, Type) {
	set := check.UnionMembers(v.VolumeSource)
	if len(set) == 0 {
		return "", Type{}
	}
	return set[0], t[set[0]]
}
