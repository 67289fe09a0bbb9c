package volume_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/volume"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	named := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	pod := &corev1.Pod{}
	pod.Name, pod.Spec.ServiceAccountName = "p", "robot"
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{named("pull")}
	pod.Spec.Volumes = []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("volume")}}},
		{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "volume"}}},
		{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("part")}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: named("part")}},
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}},
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
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: []corev1.EnvVar{
		{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("debug")}}}}}}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}},
		{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: new(named("driver"))}}},
	}...)
	got := map[string][]string{}
	volume.All().References(pod, func(resource, name string) { got[resource] = append(got[resource], name) })
	want := map[string][]string{
		"configmaps":             {"volume", "part", "all", "key"},
		"secrets":                {"pull", "volume", "part", "driver", "all", "key", "debug"},
		"persistentvolumeclaims": {"claim", "p-own"},
		"serviceaccounts":        {"robot"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
