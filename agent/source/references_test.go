package source_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/source"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	named := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	pod := &corev1.Pod{}
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{named("pull")}
	pod.Spec.Volumes = []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("volume")}}},
		{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "volume"}}},
		{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("part")}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: named("part")}},
		}}}},
		{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	pod.Spec.InitContainers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("all")}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("all")}},
	}}}
	pod.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{
		{Name: "PLAIN", Value: "x"},
		{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("key")}}},
		{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("key")}}},
	}}}
	for kind, want := range map[string][]string{
		"ConfigMap": {"volume", "part", "all", "key"}, "Secret": {"volume", "part", "all", "key", "pull"},
	} {
		if got := source.References(pod, kind); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}
