package replicaset

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

func replicationController(n int32) *corev1.ReplicationController {
	rs := replicaSet("web", n)
	return &corev1.ReplicationController{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ReplicationController"},
		ObjectMeta: rs.ObjectMeta,
		Spec: corev1.ReplicationControllerSpec{Replicas: &n, Selector: rs.Spec.Selector.MatchLabels,
			Template: &rs.Spec.Template},
	}
}

// withBoth runs a test with the controllers of ReplicaSets and ReplicationControllers. Creations of pods fail while
// down is set.
func withBoth(t *testing.T, test func(t *testing.T, api *apitest.API, down *atomic.Bool)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		var down atomic.Bool
		deps := api.Deps()
		deps.Client = &apitest.Faulty{Client: api.Client, On: down.Load}
		sets, err := New(deps, &api.Events, Config{})
		if err != nil {
			t.Fatal(err)
		}
		api.Run(sets)
		controllers, err := NewReplicationControllers(deps, &api.Events, Config{})
		if err != nil {
			t.Fatal(err)
		}
		api.Run(controllers)
		test(t, api, &down)
	})
}

func controller(t *testing.T, api *apitest.API) *corev1.ReplicationController {
	t.Helper()
	rc, ok := apitest.Get[*corev1.ReplicationController](api, "default", "web")
	if !ok {
		t.Fatal("the ReplicationController does not exist")
	}
	return rc
}

func TestReplicationController(t *testing.T) {
	withBoth(t, func(t *testing.T, api *apitest.API, _ *atomic.Bool) {
		api.Create(apitest.Pod("default", "orphan", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }),
			replicationController(3))
		apitest.Settle(time.Second)
		made := pods(api)
		if len(made) != 3 {
			t.Fatalf("%d pods, want 3", len(made))
		}
		for _, p := range made {
			if owner := metav1.GetControllerOf(p); owner == nil || owner.Kind != "ReplicationController" ||
				owner.APIVersion != "v1" || owner.UID != controller(t, api).UID {
				t.Errorf("owner %+v", owner)
			}
			api.Phase(p, corev1.PodRunning, true)
		}
		apitest.Settle(time.Second)
		if s := controller(t, api).Status; s.Replicas != 3 || s.ReadyReplicas != 3 || s.AvailableReplicas != 3 ||
			s.FullyLabeledReplicas != 3 || s.ObservedGeneration != 1 {
			t.Errorf("status %+v", s)
		}
		before := api.Store.Revision()
		apitest.Settle(24 * time.Hour)
		if after := api.Store.Revision(); after != before {
			t.Errorf("%d writes in an idle day", after-before)
		}
		scale := client.RefOf(controller(t, api)).Sub("scale")
		if _, err := api.Update(t.Context(), scale, func(cur client.Object) (client.Object, error) {
			next := cur.DeepCopyObject().(client.Object)
			next.(*autoscalingv1.Scale).Spec.Replicas = 1
			return next, nil
		}); err != nil {
			t.Fatal(err)
		}
		apitest.Settle(time.Second)
		if n := len(pods(api)); n != 1 {
			t.Errorf("%d pods after the scale", n)
		}
		apitest.Change(api, pods(api)[0], "", func(p *corev1.Pod) { p.Labels["app"] = "debug" })
		apitest.Settle(time.Second)
		if n := len(pods(api)); n != 2 {
			t.Errorf("%d pods, want the released one and its replacement", n)
		}
		if c := api.Events.Count(); c["SuccessfulCreate"] != 3 || c["SuccessfulDelete"] != 2 {
			t.Errorf("events %v", c)
		}
	})
}

func TestReplicationControllerReportsFailure(t *testing.T) {
	withBoth(t, func(t *testing.T, api *apitest.API, down *atomic.Bool) {
		down.Store(true)
		api.Create(replicationController(2))
		apitest.Settle(time.Second)
		c := controller(t, api).Status.Conditions
		if len(c) != 1 || c[0].Type != corev1.ReplicationControllerReplicaFailure || c[0].Reason != "FailedCreate" {
			t.Fatalf("conditions %+v", c)
		}
		down.Store(false)
		apitest.Settle(time.Minute)
		if s := controller(t, api).Status; s.Replicas != 2 || len(s.Conditions) != 0 {
			t.Errorf("after the failure: %+v", s)
		}
	})
}

// A ReplicaSet and a ReplicationController with the same selector ignore each other's pods.
func TestKindsOwnSeparatePods(t *testing.T) {
	withBoth(t, func(t *testing.T, api *apitest.API, _ *atomic.Bool) {
		api.Create(replicationController(2), replicaSet("web", 3))
		apitest.Settle(time.Second)
		kinds := map[string]int{}
		for _, p := range pods(api) {
			kinds[metav1.GetControllerOf(p).Kind]++
		}
		if kinds["ReplicaSet"] != 3 || kinds["ReplicationController"] != 2 {
			t.Errorf("pods by kind of owner: %v, want 3 of the ReplicaSet, 2 of the ReplicationController", kinds)
		}
	})
}
