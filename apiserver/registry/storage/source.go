package storage

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/check"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/volume"
)

func sourceDefault(s *corev1.PersistentVolumeSource) {
	if s.HostPath != nil {
		kind.SetIfNil(&s.HostPath.Type, corev1.HostPathUnset)
	}
	if s.ISCSI != nil {
		kind.SetIfZero(&s.ISCSI.ISCSIInterface, "default")
	}
	if s.RBD != nil {
		kind.SetIfZero(&s.RBD.RBDPool, "rbd")
		kind.SetIfZero(&s.RBD.RadosUser, "admin")
		kind.SetIfZero(&s.RBD.Keyring, "/etc/ceph/keyring")
	}
	if s.ScaleIO != nil {
		kind.SetIfZero(&s.ScaleIO.StorageMode, "ThinProvisioned")
		kind.SetIfZero(&s.ScaleIO.FSType, "xfs")
	}
	if s.AzureDisk != nil {
		kind.SetIfNil(&s.AzureDisk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		kind.SetIfNil(&s.AzureDisk.Kind, corev1.AzureSharedBlobDisk)
		kind.SetIfNil(&s.AzureDisk.FSType, "ext4")
		kind.SetIfNil(&s.AzureDisk.ReadOnly, false)
	}
}

// sourceErrors looks into the types that are mounted here or by a driver; of the
// cloud disks it wants what names the disk.
func sourceErrors(s *corev1.PersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := check.Union(at, *s, "volume type")
	switch {
	case s.HostPath != nil:
		errs = append(errs, volume.HostPathErrors(s.HostPath, at.Child("hostPath"))...)
	case s.Local != nil:
		as := &corev1.HostPathVolumeSource{Path: s.Local.Path}
		errs = append(errs, volume.HostPathErrors(as, at.Child("local"))...)
	case s.NFS != nil:
		errs = append(errs, volume.NFSErrors(s.NFS, at.Child("nfs"))...)
	case s.CSI != nil:
		errs = append(errs, csiSource(s.CSI, at.Child("csi"))...)
	case s.FC != nil:
		errs = append(errs, fcSource(s.FC, at.Child("fc"))...)
	case s.ISCSI != nil:
		errs = append(errs, iscsiSource(s.ISCSI, at.Child("iscsi"))...)
	default:
		errs = append(errs, missing(at, networkNames(s)...)...)
		errs = append(errs, missing(at, cloudNames(s)...)...)
	}
	return errs
}

// name is a text of a source that must be there.
type name struct{ source, field, value string }

func missing(at *field.Path, names ...name) field.ErrorList {
	var errs field.ErrorList
	for _, n := range names {
		errs = append(errs, check.Required(at.Child(n.source, n.field), n.value)...)
	}
	return errs
}

// networkNames is what names the storage of a network filesystem.
func networkNames(s *corev1.PersistentVolumeSource) []name {
	switch {
	case s.Glusterfs != nil:
		return []name{{"glusterfs", "endpoints", s.Glusterfs.EndpointsName}, {"glusterfs", "path", s.Glusterfs.Path}}
	case s.RBD != nil:
		return []name{{"rbd", "monitors", first(s.RBD.CephMonitors)}, {"rbd", "image", s.RBD.RBDImage}}
	case s.CephFS != nil:
		return []name{{"cephfs", "monitors", first(s.CephFS.Monitors)}}
	case s.FlexVolume != nil:
		return []name{{"flexVolume", "driver", s.FlexVolume.Driver}}
	case s.Quobyte != nil:
		return []name{{"quobyte", "registry", s.Quobyte.Registry}, {"quobyte", "volume", s.Quobyte.Volume}}
	case s.PortworxVolume != nil:
		return []name{{"portworxVolume", "volumeID", s.PortworxVolume.VolumeID}}
	case s.ScaleIO != nil:
		return []name{{"scaleIO", "gateway", s.ScaleIO.Gateway}, {"scaleIO", "system", s.ScaleIO.System}, {"scaleIO", "volumeName", s.ScaleIO.VolumeName}}
	}
	return nil
}

// cloudNames is what names a cloud's disk.
func cloudNames(s *corev1.PersistentVolumeSource) []name {
	switch {
	case s.GCEPersistentDisk != nil:
		return []name{{"persistentDisk", "pdName", s.GCEPersistentDisk.PDName}} // upstream's path
	case s.AWSElasticBlockStore != nil:
		return []name{{"awsElasticBlockStore", "volumeID", s.AWSElasticBlockStore.VolumeID}}
	case s.Cinder != nil:
		return []name{{"cinder", "volumeID", s.Cinder.VolumeID}}
	case s.AzureFile != nil:
		return []name{{"azureFile", "secretName", s.AzureFile.SecretName}, {"azureFile", "shareName", s.AzureFile.ShareName}}
	case s.AzureDisk != nil:
		return []name{{"azureDisk", "diskName", s.AzureDisk.DiskName}, {"azureDisk", "diskURI", s.AzureDisk.DataDiskURI}}
	case s.VsphereVolume != nil:
		return []name{{"vsphereVolume", "volumePath", s.VsphereVolume.VolumePath}}
	case s.PhotonPersistentDisk != nil:
		return []name{{"photonPersistentDisk", "pdID", s.PhotonPersistentDisk.PdID}}
	}
	return nil
}

func first(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

func csiSource(s *corev1.CSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	return slices.Concat(
		driverName(s.Driver, at.Child("driver")),
		check.Required(at.Child("volumeHandle"), s.VolumeHandle),
		secretErrors(s.ControllerPublishSecretRef, at.Child("controllerPublishSecretRef")),
		secretErrors(s.ControllerExpandSecretRef, at.Child("controllerExpandSecretRef")),
		secretErrors(s.NodePublishSecretRef, at.Child("nodePublishSecretRef")),
		secretErrors(s.NodeExpandSecretRef, at.Child("nodeExpandSecretRef")),
	)
}

func secretErrors(ref *corev1.SecretReference, at *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	return append(check.Named(at.Child("name"), ref.Name, check.Subdomain),
		check.Named(at.Child("namespace"), ref.Namespace, validation.IsDNS1123Label)...)
}

func iscsiSource(s *corev1.ISCSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := append(check.Required(at.Child("targetPortal"), s.TargetPortal), check.Required(at.Child("iqn"), s.IQN)...)
	return append(errs, lun(s.Lun, at.Child("lun"))...)
}

// fcSource names its target by world wide names and a unit, or by identifiers
// of the whole world.
func fcSource(s *corev1.FCVolumeSource, at *field.Path) field.ErrorList {
	switch byName, byID := len(s.TargetWWNs) > 0, len(s.WWIDs) > 0; {
	case !byName && !byID:
		return field.ErrorList{field.Required(at.Child("targetWWNs"), "must specify either targetWWNs or wwids, but not both")}
	case byName && byID:
		return field.ErrorList{field.Invalid(at.Child("targetWWNs"), s.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously")}
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
