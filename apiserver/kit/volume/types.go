// Package volume describes the types of volumes: an entry of All is all that the API and the node know about a type of
// pod volumes, an entry of AllPersistent about a type of PersistentVolumes. Node is what the entries need of a node.
package volume

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// Type is all that is known about one type of volume. Its functions are called only with a
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

	// SetUp sets up the volume on a node; nil: nodes do not mount the type. Unmounting needs nothing of a type: the node
	// uses what is on the disk.
	SetUp func(n Node, ctx context.Context, v *corev1.Volume) (path string, err error)
	// Plugin is upstream's name of the volume plugin, for metrics and the volume's folder; empty: the PersistentVolume
	// decides, or the volume has no folder.
	Plugin string
	// ReadOnly reports whether containers may only read the volume; nil: they may write.
	ReadOnly func(v *corev1.VolumeSource) bool
	// Usage reports whether the volume counts as ephemeral storage of the pod, and its size limit; a nil limit: none;
	// nil: it does not count.
	Usage func(v *corev1.VolumeSource) (limit *resource.Quantity, counts bool)
}

// Types are types of volumes by the JSON names of the fields of corev1.VolumeSource. A type
// without an entry has no defaults and is always valid.
type Types map[string]Type

// All returns the types of volumes. The caller must not modify them.
func All() Types { return all }

var all = Types{
	"configMap": {
		Default: configMapDefault, Validate: configMapErrors, Warnings: configMapWarnings, References: configMapReferences,
		Plugin: plugins + "configmap", SetUp: Node.ConfigMap, ReadOnly: always,
	},
	"downwardAPI": {
		Default: downwardAPIDefault, Validate: downwardAPIErrors, Warnings: downwardAPIWarnings,
		Plugin: plugins + "downward-api", SetUp: Node.DownwardAPI, ReadOnly: always,
	},
	"emptyDir": {
		Default:  func(v *corev1.VolumeSource) { v.EmptyDir.Mode = nil }, // its feature gate is alpha and off
		Validate: emptyDirErrors,
		Plugin:   plugins + "empty-dir", SetUp: Node.EmptyDir, Usage: emptyDirUsage,
	},
	"ephemeral": {
		Default: ephemeralDefault, Validate: ephemeralErrors, Warnings: ephemeralWarnings,
		References: claimReferences, Block: true, SetUp: Node.Claim,
	},
	"hostPath": {
		Default: hostPathDefault, Plugin: hostPathPlugin, SetUp: Node.HostPath,
		Validate: func(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
			return HostPathErrors(v.HostPath, at)
		},
	},
	"image": {
		Default: imageDefault, Validate: imageErrors,
		SetUp: Node.Image,
	},
	"persistentVolumeClaim": {
		Validate: claimErrors, References: claimReferences, Block: true,
		SetUp: Node.Claim, ReadOnly: func(v *corev1.VolumeSource) bool { return v.PersistentVolumeClaim.ReadOnly },
	},
	"projected": {
		Default: projectedDefault, Validate: projectedErrors, Warnings: projectedWarnings, References: projectedReferences,
		Plugin: plugins + "projected", SetUp: Node.Projected, ReadOnly: always,
	},
	"secret": {
		Default: secretDefault, Validate: secretErrors, Warnings: secretWarnings, References: secretReferences,
		Plugin: plugins + "secret", SetUp: Node.Secret, ReadOnly: always,
	},

	"csi": {
		Validate: csiErrors, References: csiReferences, Plugin: csiPlugin, SetUp: Node.CSI,
		ReadOnly: func(v *corev1.VolumeSource) bool { return v.CSI.ReadOnly != nil && *v.CSI.ReadOnly },
	},

	// No node mounts these.
	"nfs": {Validate: func(v *corev1.VolumeSource, at *field.Path) field.ErrorList { return NFSErrors(v.NFS, at) }},

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

// members returns the types of a source, in the order in which upstream validates them: emptyDir, then that of
// declaration.
func members(v *corev1.VolumeSource) []string {
	set := check.UnionMembers(*v)
	if v.HostPath != nil && v.EmptyDir != nil {
		set[0], set[1] = set[1], set[0]
	}
	return set
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
		errs = append(errs, check.One(at, members(&v.VolumeSource), "volume type")...)
		if name, of := t.Of(v); of.Validate != nil {
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
		name, of := t.Of(v)
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
	_, of := t.Of(v)
	return of.Block
}

// Plugin returns upstream's name of the volume plugin; empty for a claim, whose PersistentVolume decides, and for types
// that nodes do not mount.
func (t Types) Plugin(v *corev1.Volume) string {
	_, of := t.Of(v)
	return of.Plugin
}

// Usage reports whether a volume counts as ephemeral storage of the pod, and its size limit; nil: none.
func (t Types) Usage(v *corev1.Volume) (limit *resource.Quantity, counts bool) {
	if _, of := t.Of(v); of.Usage != nil {
		return of.Usage(&v.VolumeSource)
	}
	return nil, false
}

// ReadOnly reports whether containers may only read the pod's volume of that name.
func (t Types) ReadOnly(pod *corev1.Pod, name string) bool {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if i < 0 {
		return false
	}
	_, of := t.Of(&pod.Spec.Volumes[i])
	return of.ReadOnly != nil && of.ReadOnly(&pod.Spec.Volumes[i].VolumeSource)
}

// Of returns the type of a volume and its name; of several the first.
func (t Types) Of(v *corev1.Volume) (string, Type) {
	set := members(&v.VolumeSource)
	if len(set) == 0 {
		return "", Type{}
	}
	return set[0], t[set[0]]
}
