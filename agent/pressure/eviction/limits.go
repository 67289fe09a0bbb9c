package eviction

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"monopod/agent/podapi/status"
	"monopod/apiserver/kit/volume"
)

// Disk is a pod's usage of the node's disk, in bytes.
type Disk struct {
	Volumes    map[string]int64 // volumes on the node's disk, by name
	Containers map[string]int64 // written layer and logs, by name
}

// Limited reports whether any disk usage of the pod has a limit.
func Limited(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if limit, _ := volume.All().Usage(&pod.Spec.Volumes[i]); limit != nil {
			return true
		}
	}
	for i := range pod.Spec.Containers {
		if q, ok := pod.Spec.Containers[i].Resources.Limits[corev1.ResourceEphemeralStorage]; ok && !q.IsZero() {
			return true
		}
	}
	return false
}

// Exceeded returns the failure of a pod that exceeds a disk limit; nil: none. It checks volumes first, then the whole
// pod, then its containers.
func Exceeded(pod *corev1.Pod, d Disk) *status.Failure {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if limit, _ := volume.All().Usage(v); limit != nil && d.Volumes[v.Name] > limit.Value() {
			return failure(Reason, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit.String()))
		}
	}
	if f := podExceeds(pod, d); f != nil {
		return f
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if q, ok := c.Resources.Limits[corev1.ResourceEphemeralStorage]; ok && !q.IsZero() &&
			d.Containers[c.Name] > q.Value() {
			return failure(Reason,
				fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, q.String()))
		}
	}
	return nil
}

func podExceeds(pod *corev1.Pod, d Disk) *status.Failure {
	limit, ok := resource.PodLimits(pod, resource.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]
	if !ok || limit.IsZero() {
		return nil
	}
	var used int64
	for _, part := range []map[string]int64{d.Volumes, d.Containers} {
		for _, n := range part {
			used += n
		}
	}
	if used <= limit.Value() {
		return nil
	}
	return failure(Reason,
		fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String()))
}
