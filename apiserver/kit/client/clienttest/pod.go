package clienttest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
)

// An eviction deletes a pod if its disruption budget permits. A pod that has not started is deleted at once.
func testEviction(t *testing.T, c client.Client) {
	pod := create(t, c, Pod("evicted"))
	other := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}
	if err := client.Evict(t.Context(), c, "default", "evicted", other); !apierrors.IsConflict(err) || !exists(t, c, pod) {
		t.Errorf("of another pod: %v", err)
	}
	tried := &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	if err := client.Evict(t.Context(), c, "default", "evicted", tried); err != nil || !exists(t, c, pod) {
		t.Errorf("dry run: %v", err)
	}
	if err := client.Evict(t.Context(), c, "default", "evicted", nil); err != nil || exists(t, c, pod) {
		t.Errorf("evicted: %v", err)
	}
	if err := client.Evict(t.Context(), c, "default", "evicted", nil); !apierrors.IsNotFound(err) {
		t.Errorf("evicted again: %v", err)
	}
}

// Writes of ephemeral containers and resources change nothing else.
func testPodParts(t *testing.T, c client.Client) {
	pod := Pod("parts")
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	pod = create(t, c, pod)
	debugged, err := client.Update(t.Context(), c, pod, "ephemeralcontainers", func(p *corev1.Pod) error {
		p.Labels = map[string]string{"not": "this"}
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "x"}}}
		return nil
	})
	if err != nil || len(debugged.Spec.EphemeralContainers) != 1 || debugged.Labels["not"] != "" ||
		debugged.Generation != pod.Generation+1 {
		t.Errorf("%v: %+v", err, debugged)
	}
	resized, err := client.Update(t.Context(), c, pod, "resize", func(p *corev1.Pod) error {
		p.Spec.EphemeralContainers = nil
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
		return nil
	})
	if err != nil || resized.Spec.Containers[0].Resources.Requests.Cpu().String() != "2" ||
		len(resized.Spec.EphemeralContainers) != 1 {
		t.Errorf("%v: %+v", err, resized)
	}
	_, err = client.Update(t.Context(), c, pod, "", func(p *corev1.Pod) error {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("3")
		return nil
	})
	if !apierrors.IsInvalid(err) {
		t.Errorf("resources changed by a plain write: %v", err)
	}
}
