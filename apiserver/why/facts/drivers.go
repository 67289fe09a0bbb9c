package facts

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
)

// DriverVolume is a volume of a pod that a CSI driver mounts.
type DriverVolume struct {
	Name   string // of the PersistentVolume, or of the pod's volume
	InPod  string // its name in the pod, which Events of FailedMount contain
	Driver string
	Handle string // empty for an inline volume
}

// DriverVolumes returns the volumes of a pod that CSI drivers mount, as far as their claims are known.
func (f *Facts) DriverVolumes(p *corev1.Pod) (all []DriverVolume) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.CSI != nil {
			all = append(all, DriverVolume{Name: v.Name, InPod: v.Name, Driver: v.CSI.Driver})
		}
		name := claim.Of(p, v)
		if name == "" {
			continue
		}
		pvc := Related[*corev1.PersistentVolumeClaim](f, p.Namespace, name)
		if pvc == nil || pvc.Spec.VolumeName == "" {
			continue
		}
		if pv := Related[*corev1.PersistentVolume](f, "", pvc.Spec.VolumeName); pv != nil && pv.Spec.CSI != nil {
			all = append(all, DriverVolume{pv.Name, v.Name, pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle})
		}
	}
	return all
}

// Attachment returns the VolumeAttachment of a volume and a node, or nil.
func (f *Facts) Attachment(v DriverVolume, node string) *storagev1.VolumeAttachment {
	return Related[*storagev1.VolumeAttachment](f, "", claim.AttachmentName(v.Driver, v.Handle, node))
}

// Uninstalled reports whether a node is known to lack a CSI driver.
func (f *Facts) Uninstalled(driver, node string) bool {
	if f.Lacks(client.CSINodes, "", node) {
		return true
	}
	n := Related[*storagev1.CSINode](f, "", node)
	return n != nil &&
		!slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
}

// Registers reports whether a pod registers a CSI driver with its node.
func Registers(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.HostPath != nil && strings.HasSuffix(strings.TrimRight(v.HostPath.Path, "/"), "/plugins_registry")
	})
}

// Provisions reports whether a pod provisions volumes: drivers' controllers have the sidecar csi-provisioner.
func Provisions(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		return strings.Contains(c.Image[strings.LastIndex(c.Image, "/")+1:], "provisioner")
	})
}

// drivers reads what explains the volumes of a pod on a node that CSI drivers mount.
func (c *collector) drivers(p *corev1.Pod) {
	for _, name := range Claims(p) {
		if pvc, ok := c.get(client.PersistentVolumeClaims, p.Namespace, name).(*corev1.PersistentVolumeClaim); ok {
			c.class(pvc)
			if pvc.Spec.VolumeName != "" {
				c.get(client.PersistentVolumes, "", pvc.Spec.VolumeName)
			}
		}
	}
	volumes := c.DriverVolumes(p)
	if len(volumes) == 0 {
		return
	}
	c.get(client.CSINodes, "", p.Spec.NodeName)
	missing := false
	for _, v := range volumes {
		driver, _ := c.get(client.CSIDrivers, "", v.Driver).(*storagev1.CSIDriver)
		if v.Handle != "" && claim.NeedsAttach(driver) {
			c.get(client.VolumeAttachments, "", claim.AttachmentName(v.Driver, v.Handle, p.Spec.NodeName))
		}
		missing = missing || c.Uninstalled(v.Driver, p.Spec.NodeName)
	}
	if missing {
		c.podsThat(func(other *corev1.Pod) bool { return other.Spec.NodeName == p.Spec.NodeName && Registers(other) })
	}
}

// podsThat adds the pods of all namespaces to Others for which match returns true.
func (c *collector) podsThat(match func(*corev1.Pod) bool) {
	for _, p := range listOf[*corev1.Pod](c, "", nil) {
		if match(p) && !slices.ContainsFunc(c.Others, func(o client.Object) bool { return o.GetUID() == p.UID }) {
			c.Others = append(c.Others, p)
		}
	}
}
