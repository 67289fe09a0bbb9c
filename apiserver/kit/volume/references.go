package volume

import (
	corev1 "k8s.io/api/core/v1"
)

// References calls add for each object of its namespace that a pod reads: for its volumes, for the
// environments of its containers, and to pull its images. The resource is as in a URL; the name is
// empty if the pod does not set it.
func (t Types) References(pod *corev1.Pod, add func(resource, name string)) {
	for _, s := range pod.Spec.ImagePullSecrets {
		add("secrets", s.Name)
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if _, of := t.Of(v); of.References != nil {
			of.References(pod, v, add)
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			environment(list[i].Env, list[i].EnvFrom, add)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		c := &pod.Spec.EphemeralContainers[i]
		environment(c.Env, c.EnvFrom, add)
	}
}

func environment(env []corev1.EnvVar, from []corev1.EnvFromSource, add func(resource, name string)) {
	for _, f := range from {
		if f.SecretRef != nil {
			add("secrets", f.SecretRef.Name)
		}
		if f.ConfigMapRef != nil {
			add("configmaps", f.ConfigMapRef.Name)
		}
	}
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if ref := e.ValueFrom.SecretKeyRef; ref != nil {
			add("secrets", ref.Name)
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
			add("configmaps", ref.Name)
		}
	}
}
