package resourceclaim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func spec() resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpus"}}}}}
}

func template(name string) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaimTemplate"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: resourcev1.ResourceClaimTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec: spec()},
	}
}

func newClaim(name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec(),
	}
}

// with adds a claim from a template ("generated") and a claim by name ("named") to the pod, each unless it is empty.
func with(template, claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if template != "" {
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims,
				corev1.PodResourceClaim{Name: "generated", ResourceClaimTemplateName: &template})
		}
		if claim != "" {
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims,
				corev1.PodResourceClaim{Name: "named", ResourceClaimName: &claim})
		}
	}
}

// allocate sets finalizer, allocation and reservations of a claim, as the scheduler does.
func allocate(api *apitest.API, name string, pods ...*corev1.Pod) {
	claim := apitest.Existing[*resourcev1.ResourceClaim](api, "default", name)
	apitest.Change(api, claim, "", func(c *resourcev1.ResourceClaim) { c.Finalizers = []string{resourcev1.Finalizer} })
	apitest.Change(api, claim, "status", func(c *resourcev1.ResourceClaim) {
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: "d.example.com", Pool: "p",
				Device: "g-1"}}}}
		for _, p := range pods {
			c.Status.ReservedFor = append(c.Status.ReservedFor,
				resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
		}
	})
}

// state formats a claim: the pods in reservedFor, "allocated", and "protected" if it has finalizers.
func state(api *apitest.API, name string) string {
	c, ok := apitest.Get[*resourcev1.ResourceClaim](api, "default", name)
	if !ok {
		return "gone"
	}
	var parts []string
	for _, r := range c.Status.ReservedFor {
		parts = append(parts, r.Name)
	}
	if c.Status.Allocation != nil {
		parts = append(parts, "allocated")
	}
	if len(c.Finalizers) > 0 {
		parts = append(parts, "protected")
	}
	return strings.Join(parts, " ")
}

func TestPodOwnsTheClaimOfItsTemplate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(apitest.Must(New(api.Deps(), &api.Events)))
		api.Create(template("tpl"), apitest.Pod("default", "p", with("tpl", "")), apitest.Pod("default", "other"))
		synctest.Wait()
		pod := apitest.Existing[*corev1.Pod](api, "default", "p")
		claims := apitest.List[*resourcev1.ResourceClaim](api, "")
		if len(claims) != 1 {
			t.Fatalf("%d claims", len(claims))
		}
		c, st := claims[0], pod.Status.ResourceClaimStatuses
		if !metav1.IsControlledBy(c, pod) || !strings.HasPrefix(c.Name, "p-generated-") || c.Labels["a"] != "b" ||
			c.Annotations["resource.kubernetes.io/pod-claim-name"] != "generated" || c.Spec.Devices.Requests[0].Name != "gpu" {
			t.Errorf("claim %+v", c)
		}
		if len(st) != 1 || st[0].Name != "generated" || st[0].ResourceClaimName == nil || *st[0].ResourceClaimName != c.Name {
			t.Errorf("status %+v", st)
		}
		api.Delete(c, "")
		synctest.Wait()
		if again := apitest.List[*resourcev1.ResourceClaim](api, ""); len(again) != 1 || again[0].UID == c.UID {
			t.Errorf("the deleted claim was not recreated: %+v", again)
		}
	})
}

func TestPodWaitsForItsTemplate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		api.Run(apitest.Must(New(api.Deps(), &api.Events)))
		api.Create(apitest.Pod("default", "p", with("tpl", "")))
		synctest.Wait()
		if n := api.Events.Count(); n["FailedResourceClaimCreation"] != 1 {
			t.Errorf("events %v", n)
		}
		api.Create(template("tpl"))
		synctest.Wait()
		if n := len(apitest.List[*resourcev1.ResourceClaim](api, "")); n != 1 {
			t.Errorf("%d claims", n)
		}
	})
}

// The controller finds a claim that it had created before it was killed, although the pod's status lacks the name.
func TestClaimIsNotCreatedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		pod := apitest.Pod("default", "p", with("tpl", ""))
		api.Create(template("tpl"), pod)
		pod = apitest.Existing[*corev1.Pod](api, "default", "p")
		made := newClaim("p-generated-abcde")
		made.Annotations = map[string]string{annotation: "generated"}
		made.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod,
			corev1.SchemeGroupVersion.WithKind("Pod"))}
		api.Create(made)
		api.Run(apitest.Must(New(api.Deps(), &api.Events)))
		pod = apitest.Existing[*corev1.Pod](api, "default", "p")
		if st := pod.Status.ResourceClaimStatuses; len(st) != 1 || *st[0].ResourceClaimName != made.Name {
			t.Errorf("status %+v", st)
		}
		if n := len(apitest.List[*resourcev1.ResourceClaim](api, "")); n != 1 {
			t.Errorf("%d claims", n)
		}
	})
}

func TestReservationsEndWithTheirPods(t *testing.T) {
	t.Parallel()
	finish := func(api *apitest.API, p *corev1.Pod) { api.Phase(p, corev1.PodSucceeded, false) }
	remove := func(api *apitest.API, p *corev1.Pod) { api.Delete(p, "") }
	for name, c := range map[string]struct {
		reserves []string // pods
		end      func(api *apitest.API, p *corev1.Pod)
		ends     []string
		want     string
	}{
		"all run":         {[]string{"a", "b"}, finish, nil, "a b allocated protected"},
		"one has ended":   {[]string{"a", "b"}, finish, []string{"a"}, "b allocated protected"},
		"one is deleted":  {[]string{"a", "b"}, remove, []string{"b"}, "a allocated protected"},
		"all have ended":  {[]string{"a", "b"}, finish, []string{"a", "b"}, ""},
		"all are deleted": {[]string{"a"}, remove, []string{"a"}, ""},
		"not reserved":    {nil, finish, []string{"a"}, "allocated protected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				api.Create(newClaim("c"))
				pods := map[string]*corev1.Pod{}
				for _, name := range []string{"a", "b"} {
					api.Create(apitest.Pod("default", name, with("", "c")))
					pods[name] = apitest.Existing[*corev1.Pod](api, "default", name)
				}
				var reserves []*corev1.Pod
				for _, name := range c.reserves {
					reserves = append(reserves, pods[name])
				}
				allocate(api, "c", reserves...)
				api.Run(apitest.Must(New(api.Deps(), &api.Events)))
				for _, name := range c.ends {
					c.end(api, pods[name])
				}
				synctest.Wait()
				if got := state(api, "c"); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

// At its start the controller removes reservations of pods that were deleted or replaced meanwhile.
func TestClaimsAreReleasedAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Create(newClaim("gone"), newClaim("replaced"))
		for _, name := range []string{"gone", "replaced"} {
			api.Create(apitest.Pod("default", name, with("", name)))
			allocate(api, name, apitest.Existing[*corev1.Pod](api, "default", name))
			api.Delete(apitest.Existing[*corev1.Pod](api, "default", name), "")
		}
		api.Create(apitest.Pod("default", "replaced", with("", "replaced")))
		api.Run(apitest.Must(New(api.Deps(), &api.Events)))
		for _, name := range []string{"gone", "replaced"} {
			if got := state(api, name); got != "" {
				t.Errorf("%s: %q", name, got)
			}
		}
	})
}

func TestGeneratedClaimsOfFinishedPodsAreDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(apitest.Must(New(api.Deps(), &api.Events)))
		api.Create(newClaim("c"), template("tpl"), apitest.Pod("default", "p", with("tpl", "c")))
		synctest.Wait()
		pod := apitest.Existing[*corev1.Pod](api, "default", "p")
		generated := *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
		allocate(api, generated, pod)
		allocate(api, "c", pod)
		synctest.Wait()
		if got := state(api, generated); got != "p allocated protected" {
			t.Fatalf("%q", got)
		}
		api.Phase(pod, corev1.PodFailed, false)
		synctest.Wait()
		if got := fmt.Sprint(state(api, generated), ",", state(api, "c")); got != "gone," {
			t.Errorf("%q", got)
		}
	})
}

// A deleted claim that is in use remains until its last pod has ended.
func TestDeletedClaimWaitsForItsPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(apitest.Must(New(api.Deps(), &api.Events)))
		api.Create(newClaim("c"), newClaim("idle"), apitest.Pod("default", "p", with("", "c")))
		pod := apitest.Existing[*corev1.Pod](api, "default", "p")
		allocate(api, "c", pod)
		allocate(api, "idle")
		api.Delete(apitest.Existing[*resourcev1.ResourceClaim](api, "default", "c"), "")
		api.Delete(apitest.Existing[*resourcev1.ResourceClaim](api, "default", "idle"), "")
		synctest.Wait()
		if got := []string{state(api, "c"), state(api, "idle")}; !slices.Equal(got,
			[]string{"p allocated protected", "gone"}) {
			t.Fatalf("%q", got)
		}
		api.Phase(pod, corev1.PodSucceeded, false)
		synctest.Wait()
		if got := state(api, "c"); got != "gone" {
			t.Errorf("%q", got)
		}
	})
}

// The controller reserves an allocated claim for a pod that another client has bound.
func TestBoundPodReservesItsClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(apitest.Must(New(api.Deps(), &api.Events)))
		api.Create(newClaim("c"))
		allocate(api, "c")
		api.Create(apitest.Pod("default", "p", with("", "c"), func(p *corev1.Pod) { p.Spec.NodeName = "n" }))
		synctest.Wait()
		if got := state(api, "c"); got != "p allocated protected" {
			t.Errorf("%q", got)
		}
	})
}

func TestPrefixesAreShortened(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ pod, entry, want string }{
		{"p", "gpu", "p-gpu-"},
		{strings.Repeat("p", 90), strings.Repeat("e", 9), strings.Repeat("p", 51) + "-" + strings.Repeat("e", 5) + "-"},
	} {
		if got := prefix(c.pod, c.entry); got != c.want || len(got) > longestPrefix+1 {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
