package protection

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		},
	}
}

func using(claim, node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName = node
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	}
}

func TestClaimStaysWhilePodUsesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(NewClaims(api.Deps()))
		there := func(name string) bool {
			synctest.Wait()
			_, ok := apitest.Get[*corev1.PersistentVolumeClaim](api, "default", name)
			return ok
		}
		api.Create(newClaim("used"), newClaim("free"), newClaim("planned"),
			apitest.Pod("default", "p", using("used", "n")), apitest.Pod("default", "finished", using("used", "n")),
			apitest.Pod("default", "nowhere", using("planned", "")))
		api.Phase(apitest.Pod("default", "finished"), corev1.PodSucceeded, false)
		for _, name := range []string{"used", "free", "planned"} {
			api.Delete(newClaim(name), "")
		}
		if there("free") || there("planned") || !there("used") {
			t.Fatalf("free %v, planned %v, used %v", there("free"), there("planned"), there("used"))
		}
		remove := func(pod string) {
			if _, err := api.Client.Delete(t.Context(), refOf(pod),
				metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
				t.Fatal(err)
			}
		}
		remove("p")
		if !there("used") {
			t.Error("the claim was deleted although a finished pod refers to it")
		}
		remove("finished")
		if there("used") {
			t.Error("the claim was not deleted after its last pod")
		}
	})
}

// The lastTransitionTime of the condition Unused is the time at which the last pod stopped using the claim. A finished
// pod does not use it.
func TestUnusedSince(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(NewClaims(api.Deps()))
		want := func(what string, status corev1.ConditionStatus, reason string, since time.Time) {
			t.Helper()
			synctest.Wait()
			c, _ := apitest.Get[*corev1.PersistentVolumeClaim](api, "default", "a")
			if got := unused(c); got == nil || got.Status != status || got.Reason != reason ||
				!got.LastTransitionTime.Equal(&metav1.Time{Time: since}) {
				t.Fatalf("%s: %+v, want %s since %v", what, got, status, since)
			}
		}
		api.Create(newClaim("a"))
		synctest.Wait()
		if c, _ := apitest.Get[*corev1.PersistentVolumeClaim](api, "default", "a"); unused(c) != nil {
			t.Errorf("an unbound claim has the condition: %+v", c.Status)
		}
		bound := time.Now()
		apitest.Change(api, newClaim("a"), "status",
			func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound })
		want("bound", corev1.ConditionTrue, "NoPodsUsingPVC", bound)
		time.Sleep(time.Minute)
		api.Create(apitest.Pod("default", "p", using("a", "")), apitest.Pod("default", "q", using("a", "n")))
		used := time.Now()
		want("two pods", corev1.ConditionFalse, "PodUsingPVC", used)
		time.Sleep(time.Minute)
		api.Phase(apitest.Pod("default", "q"), corev1.PodSucceeded, false)
		want("one pod", corev1.ConditionFalse, "PodUsingPVC", used)
		if _, err := api.Client.Delete(t.Context(), refOf("p"),
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			t.Fatal(err)
		}
		want("a finished pod", corev1.ConditionTrue, "NoPodsUsingPVC", time.Now())
	})
}

func TestVolumeStaysWhileBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(NewVolumes(api.Deps()))
		volume := func(name string) *corev1.PersistentVolume {
			return &corev1.PersistentVolume{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: corev1.PersistentVolumeSpec{
					AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Capacity:               corev1.ResourceList{"storage": resource.MustParse("1Gi")},
					PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}},
				},
			}
		}
		phase := func(name string, phase corev1.PersistentVolumePhase) {
			apitest.Change(api, volume(name), "status", func(v *corev1.PersistentVolume) { v.Status.Phase = phase })
		}
		there := func(name string) bool {
			synctest.Wait()
			_, ok := apitest.Get[*corev1.PersistentVolume](api, "", name)
			return ok
		}
		api.Create(volume("bound"), volume("free"))
		phase("bound", corev1.VolumeBound)
		api.Delete(volume("bound"), "")
		api.Delete(volume("free"), "")
		if there("free") || !there("bound") {
			t.Fatalf("free %v, bound %v", there("free"), there("bound"))
		}
		phase("bound", corev1.VolumeReleased)
		if there("bound") {
			t.Error("the volume was not deleted after its release")
		}
	})
}

func refOf(pod string) client.Ref {
	return client.Ref{Resource: client.Pods, Namespace: "default", Name: pod}
}

func TestAttributesClassStaysWhileNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		class := func(name string) *storagev1.VolumeAttributesClass {
			return &storagev1.VolumeAttributesClass{
				TypeMeta:   metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttributesClass"},
				ObjectMeta: metav1.ObjectMeta{Name: name},
				DriverName: "example.com", Parameters: map[string]string{"iops": "1"},
			}
		}
		there := func(name string) bool {
			synctest.Wait()
			_, ok := apitest.Get[*storagev1.VolumeAttributesClass](api, "", name)
			return ok
		}
		api.Create(class("early")) // exists before the controller runs
		api.Run(NewAttributes(api.Deps()))
		c := newClaim("c")
		c.Spec.VolumeAttributesClassName = new("named")
		api.Create(class("named"), class("free"), c)
		for _, name := range []string{"early", "named", "free"} {
			synctest.Wait()
			if is := apitest.Existing[*storagev1.VolumeAttributesClass](api, "", name); !slices.Contains(is.Finalizers,
				claim.AttributesProtection) {
				t.Errorf("%s has the finalizers %v", name, is.Finalizers)
			}
			api.Delete(class(name), "")
		}
		if there("early") || there("free") || !there("named") {
			t.Fatalf("early %v, free %v, named %v", there("early"), there("free"), there("named"))
		}
		if _, err := api.Client.Update(t.Context(), client.RefOf(c), func(cur client.Object) (client.Object, error) {
			next := cur.DeepCopyObject().(*corev1.PersistentVolumeClaim)
			next.Finalizers = nil
			return next, nil
		}); err != nil {
			t.Fatal(err)
		}
		api.Delete(newClaim("c"), "")
		if there("named") {
			t.Error("the class was not deleted after its last claim")
		}
	})
}
