package spec

import corev1 "k8s.io/api/core/v1"

// Ephemeral returns the pod's ephemeral containers as plain containers. They are not copies.
func Ephemeral(pod *corev1.Pod) []*corev1.Container {
	var out []*corev1.Container
	for i := range pod.Spec.EphemeralContainers {
		out = append(out, (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return out
}

// Find returns the container of that name, of any type; nil if there is none.
func Find(pod *corev1.Pod, name string) *corev1.Container {
	for _, c := range append(Containers(&pod.Spec), Ephemeral(pod)...) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Target returns the name of the target container of an ephemeral container; empty: none.
func Target(pod *corev1.Pod, name string) string {
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
			return c.TargetContainerName
		}
	}
	return ""
}
