// Package claim contains the parts of PersistentVolumeClaims and PersistentVolumes that controllers and agents share:
// annotations, which claim a volume belongs to, and which volume matches a claim.
package claim

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"path/filepath"
)

// Upstream's annotations and finalizers. (k8s.io/component-helpers/storage/volume defines them too, but imports
// client-go's whole scheme.)
const (
	// BindCompleted on a claim: it was bound once.
	BindCompleted = "pv.kubernetes.io/bind-completed"
	// BoundByController on either: the controller, not the user, set the reference to the other.
	BoundByController = "pv.kubernetes.io/bound-by-controller"
	// ProvisionedBy on a volume: the provisioner, which also removes the volume.
	ProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// PreResizeCapacity on a volume: the size of its file system, which a node has yet to expand.
	PreResizeCapacity = "volume.alpha.kubernetes.io/pre-resize-capacity"
	// MigratedTo on either: the CSI driver that replaces an in-tree type.
	MigratedTo = "pv.kubernetes.io/migrated-to"
	// StorageProvisioner on a claim: the provisioner of its volume.
	StorageProvisioner     = "volume.kubernetes.io/storage-provisioner"
	BetaStorageProvisioner = "volume.beta.kubernetes.io/storage-provisioner"
	// SelectedNode on a claim: the node that the scheduler selected for its volume.
	SelectedNode = "volume.kubernetes.io/selected-node"

	// ClaimProtection and VolumeProtection are the finalizers of a claim in use and of a bound volume.
	ClaimProtection  = "kubernetes.io/pvc-protection"
	VolumeProtection = "kubernetes.io/pv-protection"
	// AttributesProtection holds a VolumeAttributesClass that a claim or a volume names.
	AttributesProtection = "kubernetes.io/vac-protection"
	// ContentProtection is the finalizer of a volume whose content is not yet removed.
	ContentProtection = "external-provisioner.volume.kubernetes.io/finalizer"
)

const (
	// Provisioner is the agent's provisioner, which creates folders below its data folder.
	Provisioner = "monopod.io/local"
	// NoProvisioner is the provisioner of classes whose volumes are created manually.
	NoProvisioner = "kubernetes.io/no-provisioner"

	// DefaultClass marks the default StorageClass; upstream still reads its beta form.
	DefaultClass     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClass = "storageclass.beta.kubernetes.io/is-default-class"
)

// Class returns the claim's storage class, or "".
func Class(c *corev1.PersistentVolumeClaim) string {
	if old, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return old
	}
	if c.Spec.StorageClassName == nil {
		return ""
	}
	return *c.Spec.StorageClassName
}

// HasClass reports whether the claim sets a class; "" counts as set.
func HasClass(c *corev1.PersistentVolumeClaim) bool {
	_, old := c.Annotations[corev1.BetaStorageClassAnnotation]
	return old || c.Spec.StorageClassName != nil
}

// VolumeClass returns the volume's storage class, or "".
func VolumeClass(v *corev1.PersistentVolume) string {
	if old, ok := v.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return old
	}
	return v.Spec.StorageClassName
}

// IsDefault reports whether the class is the default for claims without one.
func IsDefault(class *storagev1.StorageClass) bool {
	return class.Annotations[DefaultClass] == "true" || class.Annotations[betaDefaultClass] == "true"
}

// Default returns the default class, or nil if there is none. Of several it returns the newest, then the first of the
// list.
func Default(classes []*storagev1.StorageClass) *storagev1.StorageClass {
	var chosen *storagev1.StorageClass
	for _, class := range classes {
		if IsDefault(class) && (chosen == nil || chosen.CreationTimestamp.Before(&class.CreationTimestamp)) {
			chosen = class
		}
	}
	return chosen
}

// WaitsForConsumer reports whether claims of the class are bound only when a pod needs them.
func WaitsForConsumer(class *storagev1.StorageClass) bool {
	return class != nil && class.VolumeBindingMode != nil &&
		*class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// Bound reports whether the claim is bound to its volume, as far as the claim shows.
func Bound(c *corev1.PersistentVolumeClaim) bool {
	_, ok := c.Annotations[BindCompleted]
	return ok && c.Spec.VolumeName != ""
}

// Mode returns the volume mode of a claim or volume; the default is Filesystem.
func Mode(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if m == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *m
}

// IsFor reports whether the volume is bound to or reserved for the claim.
func IsFor(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Namespace == c.Namespace && ref.Name == c.Name && (ref.UID == "" || ref.UID == c.UID)
}

// Reference returns the claimRef of a volume of the claim.
func Reference(c *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim",
		Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion}
}

// Of returns the name of the claim of a pod's volume, or an empty string if the volume has none.
func Of(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, v)
	}
	return ""
}

// AllOf returns the names of the claims of the pod's volumes.
func AllOf(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		if name := Of(pod, &pod.Spec.Volumes[i]); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// WithLocalPath returns the volume with its path on this node. The folder of a volume of Provisioner is always in dir,
// even if the volume was created in another data folder and the state was restored here. It does not modify v.
func WithLocalPath(v *corev1.PersistentVolume, dir string) *corev1.PersistentVolume {
	if v.Annotations[ProvisionedBy] != Provisioner || v.Spec.Local == nil {
		return v
	}
	parent, name := filepath.Split(v.Spec.Local.Path)
	if name != v.Name || filepath.Base(parent) != filepath.Base(dir) || filepath.Clean(parent) == filepath.Clean(dir) {
		return v
	}
	v = v.DeepCopy()
	v.Spec.Local.Path = filepath.Join(dir, name)
	return v
}
