package volume

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// PersistentType is all that is known about one type of PersistentVolume. Its functions
// are called only with a source of the type; they may be nil.
type PersistentType struct {
	// Default sets the defaults of the source.
	Default func(s *corev1.PersistentVolumeSource)
	// Validate returns the errors of the source; at is the path of the source, without its
	// type, because upstream's paths do not always have the type's name.
	Validate func(s *corev1.PersistentVolumeSource, at *field.Path) field.ErrorList

	// SetUp sets up the volume on a node, for the pod's volume v; nil: nodes do not mount the type, and a creation returns
	// a warning. Plugin is required with it.
	SetUp func(n Node, ctx context.Context, pv *corev1.PersistentVolume, v *corev1.Volume) (path string, err error)
	// Plugin is upstream's name of the volume plugin.
	Plugin string
	// Path returns the path of a block volume's device on the machine; nil: SetUp returns it.
	Path func(s *corev1.PersistentVolumeSource) string
}

// PersistentTypes are types of PersistentVolumes by the JSON names of the fields of
// corev1.PersistentVolumeSource. A type without an entry has no defaults and is always valid.
type PersistentTypes map[string]PersistentType

// AllPersistent returns the types of PersistentVolumes. The caller must not modify them.
func AllPersistent() PersistentTypes { return persistent }

var persistent = PersistentTypes{
	"hostPath": {
		Plugin: hostPathPlugin, SetUp: Node.ClaimedHostPath,
		Path: func(s *corev1.PersistentVolumeSource) string { return s.HostPath.Path },
		Default: func(s *corev1.PersistentVolumeSource) {
			s.HostPath.Type = cmp.Or(s.HostPath.Type, new(corev1.HostPathUnset))
		},
		Validate: func(s *corev1.PersistentVolumeSource, at *field.Path) field.ErrorList {
			return HostPathErrors(s.HostPath, at.Child("hostPath"))
		},
	},
	"local": {
		Plugin: plugins + "local-volume", SetUp: Node.ClaimedLocal,
		Path: func(s *corev1.PersistentVolumeSource) string { return s.Local.Path },
		Validate: func(s *corev1.PersistentVolumeSource, at *field.Path) field.ErrorList {
			return HostPathErrors(&corev1.HostPathVolumeSource{Path: s.Local.Path}, at.Child("local"))
		},
	},

	"csi": {Plugin: csiPlugin, SetUp: Node.ClaimedCSI, Validate: persistentCSIErrors},

	// No node mounts these.

	"fc":    {Validate: fcErrors},
	"iscsi": {Default: iscsiDefault, Validate: iscsiErrors},
	"nfs": {Validate: func(s *corev1.PersistentVolumeSource, at *field.Path) field.ErrorList {
		return NFSErrors(s.NFS, at.Child("nfs"))
	}},

	// Network file systems and disks of clouds: only what identifies them is required.
	"awsElasticBlockStore": {Validate: required("awsElasticBlockStore", func(s *pvSource) []text {
		return []text{{"volumeID", s.AWSElasticBlockStore.VolumeID}}
	})},
	"azureDisk": {Default: azureDiskDefault, Validate: required("azureDisk", func(s *pvSource) []text {
		return []text{{"diskName", s.AzureDisk.DiskName}, {"diskURI", s.AzureDisk.DataDiskURI}}
	})},
	"azureFile": {Validate: required("azureFile", func(s *pvSource) []text {
		return []text{{"secretName", s.AzureFile.SecretName}, {"shareName", s.AzureFile.ShareName}}
	})},
	"cephfs": {Validate: required("cephfs", func(s *pvSource) []text {
		return []text{{"monitors", first(s.CephFS.Monitors)}}
	})},
	"cinder": {Validate: required("cinder", func(s *pvSource) []text {
		return []text{{"volumeID", s.Cinder.VolumeID}}
	})},
	"flexVolume": {Validate: required("flexVolume", func(s *pvSource) []text {
		return []text{{"driver", s.FlexVolume.Driver}}
	})},
	"gcePersistentDisk": {Validate: required("persistentDisk", func(s *pvSource) []text {
		return []text{{"pdName", s.GCEPersistentDisk.PDName}}
	})},
	"glusterfs": {Validate: required("glusterfs", func(s *pvSource) []text {
		return []text{{"endpoints", s.Glusterfs.EndpointsName}, {"path", s.Glusterfs.Path}}
	})},
	"photonPersistentDisk": {Validate: required("photonPersistentDisk", func(s *pvSource) []text {
		return []text{{"pdID", s.PhotonPersistentDisk.PdID}}
	})},
	"portworxVolume": {Validate: required("portworxVolume", func(s *pvSource) []text {
		return []text{{"volumeID", s.PortworxVolume.VolumeID}}
	})},
	"quobyte": {Validate: required("quobyte", func(s *pvSource) []text {
		return []text{{"registry", s.Quobyte.Registry}, {"volume", s.Quobyte.Volume}}
	})},
	"rbd": {Default: rbdDefault, Validate: required("rbd", func(s *pvSource) []text {
		return []text{{"monitors", first(s.RBD.CephMonitors)}, {"image", s.RBD.RBDImage}}
	})},
	"scaleIO": {Default: scaleIODefault, Validate: required("scaleIO", func(s *pvSource) []text {
		return []text{{"gateway", s.ScaleIO.Gateway}, {"system", s.ScaleIO.System}, {"volumeName", s.ScaleIO.VolumeName}}
	})},
	"vsphereVolume": {Validate: required("vsphereVolume", func(s *pvSource) []text {
		return []text{{"volumePath", s.VsphereVolume.VolumePath}}
	})},
}

type pvSource = corev1.PersistentVolumeSource

// text is a required field of a source.
type text struct{ field, value string }

// required returns a Validate for sources whose fields, below the field called name, must be set.
func required(name string, fields func(*pvSource) []text) func(*pvSource, *field.Path) field.ErrorList {
	return func(s *pvSource, at *field.Path) field.ErrorList {
		var errs field.ErrorList
		for _, f := range fields(s) {
			errs = append(errs, check.Required(at.Child(name, f.field), f.value)...)
		}
		return errs
	}
}

func first(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// Mounted returns the names of the types that nodes mount, sorted.
func (t PersistentTypes) Mounted() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t)), func(name string) bool { return t[name].SetUp == nil })
}

// Default sets the defaults of a source.
func (t PersistentTypes) Default(s *corev1.PersistentVolumeSource) {
	for _, name := range check.UnionMembers(*s) {
		if f := t[name].Default; f != nil {
			f(s)
		}
	}
}

// Validate returns the errors of the source at path at. Of several types, which is an error,
// it validates the first.
func (t PersistentTypes) Validate(s *corev1.PersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := check.Union(at, *s, "volume type")
	if set := check.UnionMembers(*s); len(set) > 0 && t[set[0]].Validate != nil {
		errs = append(errs, t[set[0]].Validate(s, at)...)
	}
	return errs
}

// Of returns the type of a source and its name; of several the first.
func (t PersistentTypes) Of(s *corev1.PersistentVolumeSource) (string, PersistentType) {
	set := check.UnionMembers(*s)
	if len(set) == 0 {
		return "", PersistentType{}
	}
	return set[0], t[set[0]]
}

// Mounts reports whether nodes mount the source.
func (t PersistentTypes) Mounts(s *corev1.PersistentVolumeSource) bool {
	return slices.ContainsFunc(check.UnionMembers(*s), func(name string) bool { return t[name].SetUp != nil })
}

func iscsiDefault(s *corev1.PersistentVolumeSource) {
	s.ISCSI.ISCSIInterface = cmp.Or(s.ISCSI.ISCSIInterface, "default")
}

func rbdDefault(s *corev1.PersistentVolumeSource) {
	s.RBD.RBDPool = cmp.Or(s.RBD.RBDPool, "rbd")
	s.RBD.RadosUser = cmp.Or(s.RBD.RadosUser, "admin")
	s.RBD.Keyring = cmp.Or(s.RBD.Keyring, "/etc/ceph/keyring")
}

func scaleIODefault(s *corev1.PersistentVolumeSource) {
	s.ScaleIO.StorageMode = cmp.Or(s.ScaleIO.StorageMode, "ThinProvisioned")
	s.ScaleIO.FSType = cmp.Or(s.ScaleIO.FSType, "xfs")
}

func azureDiskDefault(s *corev1.PersistentVolumeSource) {
	d := s.AzureDisk
	d.CachingMode = cmp.Or(d.CachingMode, new(corev1.AzureDataDiskCachingReadWrite))
	d.Kind = cmp.Or(d.Kind, new(corev1.AzureSharedBlobDisk))
	d.FSType = cmp.Or(d.FSType, new("ext4"))
	d.ReadOnly = cmp.Or(d.ReadOnly, new(false))
}

func persistentCSIErrors(source *corev1.PersistentVolumeSource, at *field.Path) field.ErrorList {
	s, at := source.CSI, at.Child("csi")
	return slices.Concat(
		check.DriverName(s.Driver, at.Child("driver")),
		check.Required(at.Child("volumeHandle"), s.VolumeHandle),
		secretReferenceErrors(s.ControllerPublishSecretRef, at.Child("controllerPublishSecretRef")),
		secretReferenceErrors(s.ControllerExpandSecretRef, at.Child("controllerExpandSecretRef")),
		secretReferenceErrors(s.NodePublishSecretRef, at.Child("nodePublishSecretRef")),
		secretReferenceErrors(s.NodeExpandSecretRef, at.Child("nodeExpandSecretRef")),
	)
}

func secretReferenceErrors(ref *corev1.SecretReference, at *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	return append(check.Named(at.Child("name"), ref.Name, check.Subdomain),
		check.Named(at.Child("namespace"), ref.Namespace, validation.IsDNS1123Label)...)
}

func iscsiErrors(source *corev1.PersistentVolumeSource, at *field.Path) field.ErrorList {
	s, at := source.ISCSI, at.Child("iscsi")
	errs := append(check.Required(at.Child("targetPortal"), s.TargetPortal), check.Required(at.Child("iqn"), s.IQN)...)
	return append(errs, lun(s.Lun, at.Child("lun"))...)
}

// fcErrors requires either target world wide names and a LUN, or world wide identifiers.
func fcErrors(source *corev1.PersistentVolumeSource, at *field.Path) field.ErrorList {
	s, at := source.FC, at.Child("fc")
	switch byName, byID := len(s.TargetWWNs) > 0, len(s.WWIDs) > 0; {
	case !byName && !byID:
		return field.ErrorList{field.Required(at.Child("targetWWNs"),
			"must specify either targetWWNs or wwids, but not both")}
	case byName && byID:
		return field.ErrorList{field.Invalid(at.Child("targetWWNs"), s.TargetWWNs,
			"targetWWNs and wwids can not be specified simultaneously")}
	case byName && s.Lun == nil:
		return field.ErrorList{field.Required(at.Child("lun"), "lun is required if targetWWNs is specified")}
	case byName:
		return lun(*s.Lun, at.Child("lun"))
	}
	return nil
}

func lun(unit int32, at *field.Path) field.ErrorList {
	return check.Invalid(at, unit, validation.IsInRange(int(unit), 0, 255))
}
