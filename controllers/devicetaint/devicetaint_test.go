package devicetaint

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const driver = "d.example.com"

// slice publishes the device g-1 of the pool p.
func slice(name string, generation int64, taints ...resourcev1.DeviceTaint) *resourcev1.ResourceSlice {
	node := "n"
	return &resourcev1.ResourceSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceSliceSpec{Driver: driver, NodeName: &node,
			Pool:    resourcev1.ResourcePool{Name: "p", Generation: generation, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "g-1", Taints: taints}}},
	}
}

func taint(effect resourcev1.DeviceTaintEffect) resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{Key: "d.example.com/sick", Effect: effect}
}

func rule(effect resourcev1.DeviceTaintEffect, device string) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "DeviceTaintRule"},
		ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec: resourcev1.DeviceTaintRuleSpec{DeviceSelector: &resourcev1.DeviceTaintSelector{Device: &device},
			Taint: taint(effect)},
	}
}

// running creates a pod on a node that uses g-1 through a claim with these tolerations.
func running(api *apitest.API, tolerations ...resourcev1.DeviceToleration) {
	name := "c"
	pod := apitest.Pod("default", "p", func(p *corev1.Pod) {
		p.Spec.NodeName = "n"
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &name}}
	})
	claim := &resourcev1.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpus", Tolerations: tolerations}}}}},
	}
	api.Create(pod, claim)
	uid := apitest.Existing[*corev1.Pod](api, "default", "p").UID
	apitest.Change(api, claim, "status", func(c *resourcev1.ResourceClaim) {
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: driver, Pool: "p", Device: "g-1", Tolerations: tolerations}}}}
		c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: uid}}
	})
}

// evicted reports whether the controller has evicted the pod.
func evicted(api *apitest.API) bool {
	pod := apitest.Existing[*corev1.Pod](api, "default", "p")
	c := podstate.Condition(pod, corev1.DisruptionTarget)
	return pod.DeletionTimestamp != nil && c != nil && c.Reason == "DeletionByDeviceTaintManager"
}

func TestTaintsEvict(t *testing.T) {
	t.Parallel()
	seconds := func(n int64) *int64 { return &n }
	exists := func(effect resourcev1.DeviceTaintEffect, n *int64) resourcev1.DeviceToleration {
		return resourcev1.DeviceToleration{Operator: "Exists", Effect: effect, TolerationSeconds: n}
	}
	for name, c := range map[string]struct {
		taint       resourcev1.DeviceTaintEffect // of the slice
		rule        resourcev1.DeviceTaintEffect
		device      string // that the rule selects
		outdated    bool   // a newer generation of the pool exists
		tolerations []resourcev1.DeviceToleration
		now, later  bool // evicted at once, and after a minute
	}{
		"by the driver":         {taint: "NoExecute", now: true},
		"by an outdated slice":  {taint: "NoExecute", outdated: true},
		"NoSchedule":            {taint: "NoSchedule"},
		"by a rule":             {rule: "NoExecute", device: "g-1", now: true},
		"by another's rule":     {rule: "NoExecute", device: "g-2"},
		"a rule without effect": {rule: "None", device: "g-1"},
		"tolerated": {taint: "NoExecute", rule: "NoExecute", device: "g-1",
			tolerations: []resourcev1.DeviceToleration{exists("NoExecute", nil)}},
		"all effects tolerated": {taint: "NoExecute", tolerations: []resourcev1.DeviceToleration{exists("", nil)}},
		"another effect tolerated": {taint: "NoExecute", now: true,
			tolerations: []resourcev1.DeviceToleration{exists("NoSchedule", nil)}},
		"tolerated for a while": {taint: "NoExecute", tolerations: []resourcev1.DeviceToleration{exists("NoExecute",
			seconds(30)), exists("NoExecute", seconds(60))}, later: true},
		"tolerated for longer": {rule: "NoExecute", device: "g-1",
			tolerations: []resourcev1.DeviceToleration{exists("NoExecute", seconds(90))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				api.Run(apitest.Must(New(api.Deps(), &api.Events)))
				running(api, c.tolerations...)
				if c.outdated {
					api.Create(slice("newer", 2))
				}
				if c.taint != "" {
					api.Create(slice("s", 1, taint(c.taint)))
				}
				if c.rule != "" {
					api.Create(rule(c.rule, c.device))
				}
				apitest.Settle(time.Second)
				if got := evicted(api); got != c.now {
					t.Errorf("evicted at once: %t", got)
				}
				apitest.Settle(time.Minute)
				if got := evicted(api); got != (c.now || c.later) {
					t.Errorf("evicted after a minute: %t", got)
				}
			})
		})
	}
}

// If the taint is removed within tolerationSeconds, the pod is not evicted.
func TestEvictionIsCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		api.Run(apitest.Must(New(api.Deps(), &api.Events)))
		n := int64(30)
		running(api, resourcev1.DeviceToleration{Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &n})
		api.Create(slice("s", 1, taint("NoExecute")))
		apitest.Settle(10 * time.Second)
		apitest.Change(api, slice("s", 1), "", func(s *resourcev1.ResourceSlice) { s.Spec.Devices[0].Taints = nil })
		apitest.Settle(time.Minute)
		if evicted(api) {
			t.Error("evicted although the taint was removed")
		}
		if got := api.Events.Count()["DeviceTaintManagerEviction"]; got != 1 {
			t.Errorf("%d events", got)
		}
	})
}

func TestConditionOfRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(apitest.Must(New(api.Deps(), &api.Events)))
		n := int64(30)
		running(api, resourcev1.DeviceToleration{Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &n})
		api.Create(slice("s", 1), rule("None", "g-1"))
		expect := func(when string, status metav1.ConditionStatus, reason, message string) {
			t.Helper()
			c := meta.FindStatusCondition(apitest.Existing[*resourcev1.DeviceTaintRule](api, "", "r").Status.Conditions,
				"EvictionInProgress")
			if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
				t.Errorf("%s: %+v", when, c)
			}
		}
		apitest.Settle(time.Second)
		expect("no effect", "False", "NoEffect",
			"1 published device and 1 allocated device match. With the effect NoExecute, 1 pod in 1 namespace")
		apitest.Change(api, rule("", ""), "", func(r *resourcev1.DeviceTaintRule) { r.Spec.Taint.Effect = "NoExecute" })
		apitest.Settle(time.Second)
		expect("evicting", "True", "PodsPendingEviction", "1 pod in 1 namespace")
		apitest.Settle(time.Minute)
		if !evicted(api) {
			t.Error("not evicted")
		}
		expect("evicted", "False", "Completed", "1 pod evicted")
		apitest.Change(api, rule("", ""), "", func(r *resourcev1.DeviceTaintRule) { r.Spec.Taint.Effect = "NoSchedule" })
		apitest.Settle(time.Second)
		expect("another effect", "False", "OtherEffect", "")
	})
}
