package ephemeral

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func spec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
	}
}

func scratch(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch",
		VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: spec()}}}}}
}

func TestPodOwnsItsClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(New(api.Deps(), &api.Events))
		api.Create(apitest.Pod("default", "p", scratch), apitest.Pod("default", "other"))
		synctest.Wait()
		pod, _ := apitest.Get[*corev1.Pod](api, "default", "p")
		c, ok := apitest.Get[*corev1.PersistentVolumeClaim](api, "default", "p-scratch")
		if !ok || !metav1.IsControlledBy(c, pod) || c.Labels["a"] != "b" {
			t.Fatalf("claim %+v", c)
		}
		if n := len(apitest.List[*corev1.PersistentVolumeClaim](api, "")); n != 1 {
			t.Errorf("%d claims", n)
		}
		apitest.Change(api, c, "", func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil })
		api.Delete(c, "")
		synctest.Wait()
		again, ok := apitest.Get[*corev1.PersistentVolumeClaim](api, "default", "p-scratch")
		if !ok || again.UID == c.UID {
			t.Error("the controller did not recreate the deleted claim")
		}
	})
}

func TestForeignClaimIsRejected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		api.Run(New(api.Deps(), &api.Events))
		api.Create(&corev1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p-scratch"}, Spec: spec()}, apitest.Pod("default", "p",
			scratch))
		synctest.Wait()
		if n := api.Events.Count(); n["FailedBinding"] == 0 {
			t.Errorf("events %v", n)
		}
	})
}
