package claim

import (
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// csiPrefix begins the unique names of CSI volumes.
const csiPrefix = "kubernetes.io/csi/"

// UniqueName returns the name of a CSI volume in volumesInUse and volumesAttached of a node's status.
func UniqueName(driver, handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(csiPrefix + driver + "^" + handle)
}

// SplitUniqueName returns the driver and the handle of a CSI volume; ok is false for a volume of another type.
func SplitUniqueName(name corev1.UniqueVolumeName) (driver, handle string, ok bool) {
	rest, csi := strings.CutPrefix(string(name), csiPrefix)
	driver, handle, found := strings.Cut(rest, "^")
	return driver, handle, csi && found
}

// AttachmentName returns the name of the VolumeAttachment of a CSI volume and a node (upstream getAttachmentName).
func AttachmentName(driver, handle, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// NeedsAttach reports whether a driver's volumes are attached to nodes before their use. The driver is nil if it has no
// CSIDriver.
func NeedsAttach(driver *storagev1.CSIDriver) bool {
	return driver == nil || driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired
}
