package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// mounts returns the container's volume mounts. Read-only mounts include whether they are recursively read-only, image
// volumes their image.
func mounts(spec *corev1.Container, c *Container) []corev1.VolumeMountStatus {
	var out []corev1.VolumeMountStatus
	for i := range spec.VolumeMounts {
		m := &spec.VolumeMounts[i]
		one := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			one.RecursiveReadOnly = new(corev1.RecursiveReadOnlyDisabled)
		}
		if m.ReadOnly && slices.Contains(c.RecursiveReadOnly, m.MountPath) {
			one.RecursiveReadOnly = new(corev1.RecursiveReadOnlyEnabled)
		}
		if id := c.ImageVolumes[m.MountPath]; id != "" {
			one.VolumeStatus = &corev1.VolumeStatus{Image: &corev1.ImageVolumeStatus{ImageRef: id}}
		}
		out = append(out, one)
	}
	return out
}
