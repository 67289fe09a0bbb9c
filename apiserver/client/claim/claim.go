// Package claim is what controllers and agents have to agree on about
// PersistentVolumeClaims and PersistentVolumes: the annotations by which they talk
// to each other, whose a volume is, and which volume suits a claim.
package claim

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// Annotations and finalizers, upstream's. (k8s.io/component-helpers/storage/volume
// has them too, with client-go's whole scheme behind it.)
const (
	// BindCompleted on a claim: it has been bound once.
	BindCompleted = "pv.kubernetes.io/bind-completed"
	// BoundByController on either: the reference to the other was not the user's.
	BoundByController = "pv.kubernetes.io/bound-by-controller"
	// ProvisionedBy on a volume: who made it, and removes it.
	ProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// StorageProvisioner on a claim: who is to make its volume.
	StorageProvisioner     = "volume.kubernetes.io/storage-provisioner"
	BetaStorageProvisioner = "volume.beta.kubernetes.io/storage-provisioner"
	// SelectedNode on a claim: where the scheduler wants its volume.
	SelectedNode = "volume.kubernetes.io/selected-node"

	// ClaimProtection and VolumeProtection hold a claim in use, a volume that is bound.
	ClaimProtection  = "kubernetes.io/pvc-protection"
	VolumeProtection = "kubernetes.io/pv-protection"
	// ContentProtection holds a volume until its content is removed.
	ContentProtection = "external-provisioner.volume.kubernetes.io/finalizer"
)

const (
	// Provisioner is the agent's own: folders below its data folder.
	Provisioner = "monopod.io/local"
	// NoProvisioner is of classes whose volumes are made by hand.
	NoProvisioner = "kubernetes.io/no-provisioner"

	// DefaultClass marks the class of claims that name none; upstream still reads its
	// beta form.
	DefaultClass     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClass = "storageclass.beta.kubernetes.io/is-default-class"
)

// Class is the claim's storage class, or empty.
func Class(c *corev1.PersistentVolumeClaim) string {
	if old, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return old
	}
	if c.Spec.StorageClassName == nil {
		return ""
	}
	return *c.Spec.StorageClassName
}

// SaysClass is false for a claim that leaves its class open; "" is a class too.
func SaysClass(c *corev1.PersistentVolumeClaim) bool {
	_, old := c.Annotations[corev1.BetaStorageClassAnnotation]
	return old || c.Spec.StorageClassName != nil
}

// VolumeClass is the volume's storage class, or empty.
func VolumeClass(v *corev1.PersistentVolume) string {
	if old, ok := v.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return old
	}
	return v.Spec.StorageClassName
}

// IsDefault says that claims that name no class get this one.
func IsDefault(class *storagev1.StorageClass) bool {
	return class.Annotations[DefaultClass] == "true" || class.Annotations[betaDefaultClass] == "true"
}

// Default is the class of claims that name none: of several the youngest, then the
// first of the list; nil: there is none.
func Default(classes []*storagev1.StorageClass) *storagev1.StorageClass {
	var chosen *storagev1.StorageClass
	for _, class := range classes {
		if IsDefault(class) && (chosen == nil || chosen.CreationTimestamp.Before(&class.CreationTimestamp)) {
			chosen = class
		}
	}
	return chosen
}

// Waits says that claims of the class are bound when a pod needs them.
func Waits(class *storagev1.StorageClass) bool {
	return class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// Bound says that the claim has its volume, on both sides as far as it knows.
func Bound(c *corev1.PersistentVolumeClaim) bool {
	_, ok := c.Annotations[BindCompleted]
	return ok && c.Spec.VolumeName != ""
}

// Mode is that of a claim or a volume: a filesystem unless it says otherwise.
func Mode(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if m == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *m
}

// IsFor says that the volume is bound to the claim, or meant for it.
func IsFor(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Namespace == c.Namespace && ref.Name == c.Name && (ref.UID == "" || ref.UID == c.UID)
}

// Reference is what a volume of the claim has as claimRef.
func Reference(c *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim",
		Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion}
}

// Of is the name of the claim behind a pod's volume; empty: it has none.
func Of(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, v)
	}
	return ""
}

// AllOf are the names of the claims behind the pod's volumes.
func AllOf(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		if name := Of(pod, &pod.Spec.Volumes[i]); name != "" {
			names = append(names, name)
		}
	}
	return names
}
