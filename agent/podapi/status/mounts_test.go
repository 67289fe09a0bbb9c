package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMounts(t *testing.T) {
	t.Parallel()
	spec := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{
		{Name: "a", MountPath: "/a"},
		{Name: "b", MountPath: "/b", ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyIfPossible)},
		{Name: "c", MountPath: "/c", ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyIfPossible)},
		{Name: "d", MountPath: "/d", ReadOnly: true},
		{Name: "e", MountPath: "/e"},
	}}
	c := FromCRI(&cri.ContainerStatus{Id: "1", Metadata: &cri.ContainerMetadata{Name: "c"}, Mounts: []*cri.Mount{
		{ContainerPath: "/b", Readonly: true}, {ContainerPath: "/c", Readonly: true, RecursiveReadOnly: true},
		{ContainerPath: "/d", Readonly: true},
		{ContainerPath: "/e", Readonly: true, Image: &cri.ImageSpec{Image: "sha256:1"}},
	}}, "s")
	want := []corev1.VolumeMountStatus{
		{Name: "a", MountPath: "/a"},
		{Name: "b", MountPath: "/b", ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyDisabled)},
		{Name: "c", MountPath: "/c", ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyEnabled)},
		{Name: "d", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyDisabled)},
		{Name: "e", MountPath: "/e",
			VolumeStatus: &corev1.VolumeStatus{Image: &corev1.ImageVolumeStatus{ImageRef: "sha256:1"}}},
	}
	if got := mounts(spec, &c); !apiequality.Semantic.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	// The status keeps the mounts after the garbage collection of the container.
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{*spec}}}
	in := Input{Pod: pod, Observed: &Observed{Containers: []Container{c}}}
	pod.Status = Of(in)
	in.Observed = &Observed{}
	if got := Of(in).ContainerStatuses[0].VolumeMounts; !apiequality.Semantic.DeepEqual(got, want) {
		t.Errorf("after garbage collection: %+v", got)
	}
}
