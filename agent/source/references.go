package source

import (
	corev1 "k8s.io/api/core/v1"
)

// References are the names of the ConfigMaps or Secrets a pod uses.
func References(pod *corev1.Pod, kind string) []string {
	var r refs
	for i := range pod.Spec.Volumes {
		r.volume(&pod.Spec.Volumes[i])
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			r.container(&list[i])
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		r.secrets = append(r.secrets, s.Name)
	}
	if kind == "Secret" {
		return r.secrets
	}
	return r.configMaps
}

type refs struct{ configMaps, secrets []string }

func (r *refs) volume(v *corev1.Volume) {
	if v.ConfigMap != nil {
		r.configMaps = append(r.configMaps, v.ConfigMap.Name)
	}
	if v.Secret != nil {
		r.secrets = append(r.secrets, v.Secret.SecretName)
	}
	if v.Projected == nil {
		return
	}
	for _, p := range v.Projected.Sources {
		if p.ConfigMap != nil {
			r.configMaps = append(r.configMaps, p.ConfigMap.Name)
		}
		if p.Secret != nil {
			r.secrets = append(r.secrets, p.Secret.Name)
		}
	}
}

func (r *refs) container(c *corev1.Container) {
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			r.configMaps = append(r.configMaps, from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			r.secrets = append(r.secrets, from.SecretRef.Name)
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			continue
		}
		if k := v.ValueFrom.ConfigMapKeyRef; k != nil {
			r.configMaps = append(r.configMaps, k.Name)
		}
		if k := v.ValueFrom.SecretKeyRef; k != nil {
			r.secrets = append(r.secrets, k.Name)
		}
	}
}
