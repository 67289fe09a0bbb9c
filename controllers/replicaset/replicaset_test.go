package replicaset

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func replicaSet(name string, n int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	return &appsv1.ReplicaSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
			},
		},
	}
}

// within runs a test against a running controller.
func within(t *testing.T, test func(t *testing.T, api *apitest.API)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		start(t, api, api.Client)
		test(t, api)
	})
}

// start runs the controller on c.
func start(t *testing.T, api *apitest.API, c client.Client) {
	deps := api.Deps()
	deps.Client = c
	ctrl, err := New(deps, &api.Events, Config{})
	if err != nil {
		t.Fatal(err)
	}
	api.Run(ctrl)
}

func pods(api *apitest.API) []*corev1.Pod { return apitest.List[*corev1.Pod](api, "default") }

func get(t *testing.T, api *apitest.API, name string) *appsv1.ReplicaSet {
	t.Helper()
	rs, ok := apitest.Get[*appsv1.ReplicaSet](api, "default", name)
	if !ok {
		t.Fatalf("ReplicaSet %s does not exist", name)
	}
	return rs
}

func scale(api *apitest.API, name string, n int32) {
	apitest.Change(api, replicaSet(name, 0), "", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n })
}

func TestCreatesReplacesAndDeletesPods(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(replicaSet("web", 3))
		apitest.Settle(time.Second)
		made := pods(api)
		if len(made) != 3 {
			t.Fatalf("%d pods, want 3", len(made))
		}
		owner := metav1.GetControllerOf(made[0])
		if owner == nil || owner.Kind != "ReplicaSet" || owner.UID != get(t, api, "web").UID || !*owner.BlockOwnerDeletion {
			t.Errorf("owner %+v", owner)
		}
		if made[0].GenerateName != "web-" || made[0].Labels["app"] != "web" {
			t.Errorf("pod %+v", made[0].ObjectMeta)
		}
		for _, p := range made {
			api.Phase(p, corev1.PodRunning, true)
		}
		apitest.Settle(time.Second)
		if s := get(t, api, "web").Status; s.Replicas != 3 || s.ReadyReplicas != 3 || s.AvailableReplicas != 3 ||
			s.FullyLabeledReplicas != 3 {
			t.Errorf("status %+v", s)
		}
		api.Phase(made[0], corev1.PodFailed, false)
		api.Delete(made[1], "") // the pod is not bound, so its deletion is immediate
		apitest.Settle(time.Second)
		if n := len(pods(api)); n != 4 {
			t.Errorf("%d pods, want the failed one and three active", n)
		}
		scale(api, "web", 1)
		apitest.Settle(time.Second)
		left := 0
		for _, p := range pods(api) {
			if p.Status.Phase != corev1.PodFailed {
				left++
				if p.UID != made[2].UID {
					t.Error("the ready pod was deleted before a pod that had not started")
				}
			}
		}
		if left != 1 {
			t.Errorf("%d active pods left", left)
		}
		if c := api.Events.Count(); c["SuccessfulCreate"] != 5 || c["SuccessfulDelete"] != 2 {
			t.Errorf("events %v", c)
		}
	})
}

func TestManyPodsInBursts(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(replicaSet("web", 700))
		apitest.Settle(time.Second)
		if n := len(pods(api)); n != 700 {
			t.Errorf("%d pods, want 700", n)
		}
		scale(api, "web", 0)
		apitest.Settle(time.Second)
		if n := len(pods(api)); n != 0 {
			t.Errorf("%d pods left", n)
		}
	})
}

// meanwhile is a client that calls do when it creates the pod number at.
type meanwhile struct {
	client.Client
	at      int64
	created atomic.Int64
	before  atomic.Int64 // number of pods when do returned
	do      func()
}

func (m *meanwhile) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	if _, ok := obj.(*corev1.Pod); ok && m.created.Add(1) == m.at {
		m.do()
		m.before.Store(m.created.Load())
	}
	return m.Client.Create(ctx, obj)
}

// TestChangesWhileCreating tests that the controller creates at most two more bursts of pods after the ReplicaSet is
// scaled down or deleted.
func TestChangesWhileCreating(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(api *apitest.API){
		"scaled down": func(api *apitest.API) { scale(api, "web", 10) },
		"deleted":     func(api *apitest.API) { api.Delete(replicaSet("web", 0), metav1.DeletePropagationOrphan) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				m := &meanwhile{Client: api.Client, at: 600, do: func() { do(api) }}
				start(t, api, m)
				api.Create(replicaSet("web", 2000))
				apitest.Settle(time.Second)
				if n, most := m.created.Load(), m.before.Load()+2*burst; n < burst || n > most {
					t.Errorf("%d pods were created, want at most %d", n, most)
				}
				// Without a garbage collector, the pods of a deleted ReplicaSet remain.
				if n := len(slices.DeleteFunc(pods(api),
					func(p *corev1.Pod) bool { return metav1.GetControllerOf(p) == nil })); n > 10 && name != "deleted" {
					t.Errorf("%d pods of the set are left", n)
				}
			})
		})
	}
}

func TestGracefulDeletionIsReplacedAtOnce(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(replicaSet("web", 1))
		apitest.Settle(time.Second)
		pod := pods(api)[0]
		apitest.Change(api, pod, "binding", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
		api.Delete(pod, "")
		apitest.Settle(time.Second)
		if n := len(pods(api)); n != 2 {
			t.Fatalf("%d pods, want the terminating one and its replacement", n)
		}
		if s := get(t, api, "web").Status; s.Replicas != 1 || s.TerminatingReplicas == nil || *s.TerminatingReplicas != 1 {
			t.Errorf("status %+v", s)
		}
	})
}

const lag = 300 * time.Millisecond

// TestAdoptsAndReleases tests adoption and release, also if the watch of pods or ReplicaSets is late.
func TestAdoptsAndReleases(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]schema.GroupVersionResource{"in order": {}, "pods late": client.Pods,
		"replicasets late": client.ReplicaSets} {
		for _, ordered := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, ordered: %v", name, ordered), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := apitest.New(t)
					start(t, api, apitest.Lagging{Client: api.Client, Resource: late, By: lag, Ordered: ordered})
					adoptsAndReleases(t, api)
				})
			})
		}
	}
}

func adoptsAndReleases(t *testing.T, api *apitest.API) {
	labelled := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }
	api.Create(apitest.Pod("default", "orphan", labelled), replicaSet("web", 1))
	for range 10 {
		apitest.Settle(lag)
		if n := len(pods(api)); n != 1 {
			t.Fatalf("%d pods, want the orphan alone", n)
		}
	}
	orphan := pods(api)[0]
	if !metav1.IsControlledBy(orphan, get(t, api, "web")) {
		t.Fatalf("orphan not adopted: owners %v", orphan.OwnerReferences)
	}
	apitest.Change(api, orphan, "", func(p *corev1.Pod) { p.Labels["app"] = "debug" })
	apitest.Settle(10 * lag)
	released, ok := apitest.Get[*corev1.Pod](api, "default", "orphan")
	if !ok || len(released.OwnerReferences) != 0 || len(pods(api)) != 2 {
		t.Fatalf("want the pod released and replaced: %v, %d pods", released, len(pods(api)))
	}
	api.Create(apitest.Pod("default", "late", labelled))
	apitest.Settle(10 * lag)
	if n := len(pods(api)); n != 2 {
		t.Errorf("%d pods, want 2: the released one and one replica, because the adopted orphan is surplus", n)
	}
}

func TestAvailableWhenMinReadySecondsHavePassed(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		rs := replicaSet("web", 1)
		rs.Spec.MinReadySeconds = 30
		api.Create(rs)
		apitest.Settle(time.Second)
		api.Phase(pods(api)[0], corev1.PodRunning, true)
		apitest.Settle(20 * time.Second)
		if s := get(t, api, "web").Status; s.ReadyReplicas != 1 || s.AvailableReplicas != 0 {
			t.Errorf("after 20 s: %+v", s)
		}
		apitest.Settle(12 * time.Second)
		if s := get(t, api, "web").Status; s.AvailableReplicas != 1 {
			t.Errorf("after 32 s: %+v", s)
		}
	})
}

func TestFailureIsReportedAndRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		var down atomic.Bool
		down.Store(true)
		start(t, api, &apitest.Faulty{Client: api.Client, On: down.Load})
		api.Create(replicaSet("web", 3))
		apitest.Settle(time.Second)
		conditions := get(t, api, "web").Status.Conditions
		if len(conditions) != 1 || conditions[0].Reason != "FailedCreate" {
			t.Fatalf("conditions %+v", conditions)
		}
		if api.Events.Count()["FailedCreate"] == 0 {
			t.Error("no FailedCreate Event")
		}
		down.Store(false)
		apitest.Settle(time.Minute)
		if s := get(t, api, "web").Status; s.Replicas != 3 || len(s.Conditions) != 0 {
			t.Errorf("after the failure: %+v", s)
		}
	})
}

func TestIdleWritesNothing(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(replicaSet("web", 5))
		apitest.Settle(time.Second)
		before := api.Store.Revision()
		apitest.Settle(24 * time.Hour)
		if after := api.Store.Revision(); after != before {
			t.Errorf("%d writes in an idle day", after-before)
		}
	})
}

func TestTwentySetsOwnSeparatePods(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		for i := range 20 {
			api.Create(replicaSet(fmt.Sprint("set-", i), int32(i)))
		}
		apitest.Settle(time.Second)
		for i := range 20 {
			if s := get(t, api, fmt.Sprint("set-", i)).Status; int(s.Replicas) != i {
				t.Errorf("set-%d has %d replicas", i, s.Replicas)
			}
		}
		if n := len(pods(api)); n != 190 {
			t.Errorf("%d pods, want 190", n)
		}
	})
}
