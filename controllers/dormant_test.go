package controllers

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

// queues are the controllers of the cluster that run.
func queues(t *testing.T, api *apitest.API) map[string]bool {
	t.Helper()
	families, err := api.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range families {
		if f.GetName() != "workqueue_depth" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "name" {
					names[l.GetValue()] = true
				}
			}
		}
	}
	return names
}

// Controllers of devices do not run, and are well, before there is something to do.
func TestControllersOfDevicesSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const claims, taints = "resourceclaim-controller", "device-taint-eviction-controller"
		api := apitest.New(t)
		cfg := served()
		cfg.Controllers = []string{claims, taints, "replicaset"}
		m := manage(t, api, cfg)
		expect := func(when string, claim, taint bool) {
			t.Helper()
			apitest.Settle(time.Second)
			if run := queues(t, api); run[claims] != claim || run[taints] != taint || !run["replicaset"] {
				t.Errorf("%s: %v", when, run)
			}
			for _, c := range m.Checks() {
				if err := c.Check(t.Context()); err != nil {
					t.Errorf("%s: %s: %v", when, c.Name, err)
				}
			}
		}
		expect("unused", false, false)
		api.Create(apitest.Pod("default", "plain"))
		expect("a pod without claims", false, false)
		kind := func(name string) metav1.TypeMeta {
			return metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: name}
		}
		api.Create(&resourcev1.DeviceClass{TypeMeta: kind("DeviceClass"), ObjectMeta: metav1.ObjectMeta{Name: "c"}})
		expect("a class", true, false)
		api.Create(&resourcev1.DeviceTaintRule{TypeMeta: kind("DeviceTaintRule"), ObjectMeta: metav1.ObjectMeta{Name: "r"},
			Spec: resourcev1.DeviceTaintRuleSpec{Taint: resourcev1.DeviceTaint{Key: "k", Effect: "None"}}})
		expect("a rule", true, true)
	})
}

// A pod that names a template gets the event that it is missing, also if nothing else uses devices: before the manager starts, and after.
func TestPodWakesTheControllerOfClaims(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"a new pod": false, "a pod that is there": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				pod := apitest.Pod("default", "p", func(p *corev1.Pod) {
					p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("absent")}}
				})
				if early {
					api.Create(pod)
				}
				cfg := served()
				cfg.Controllers = []string{"resourceclaim-controller"}
				manage(t, api, cfg)
				if !early {
					apitest.Settle(time.Second)
					api.Create(pod)
				}
				apitest.Settle(5 * time.Second)
				var said []string
				for _, e := range apitest.List[*corev1.Event](api, "default") {
					said = append(said, e.Reason+": "+e.Message)
				}
				const want = `FailedResourceClaimCreation: PodResourceClaim gpu: resource claim template "absent": resourceclaimtemplates.resource.k8s.io "absent" not found`
				if len(said) != 1 || said[0] != want {
					t.Errorf("events %q", said)
				}
			})
		})
	}
}
