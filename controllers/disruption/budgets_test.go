package disruption

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

// withWidgets is a client with the custom kind Widget, whose scale has 5 replicas.
type withWidgets struct{ client.Client }

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func (w withWidgets) Get(ctx context.Context, ref client.Ref) (client.Object, error) {
	if ref.Resource == widgets && ref.Subresource == "scale" {
		return &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: ref.Name, UID: "widget"},
			Spec: autoscalingv1.ScaleSpec{Replicas: 5}}, nil
	}
	return w.Client.Get(ctx, ref)
}

func kinds() ([]client.Kind, <-chan struct{}) {
	return append(apitest.Kinds().Now(), client.Kind{Resource: widgets, Kind: "Widget", Namespaced: true, Scale: true}),
		nil
}

// TestBudgets computes the status of one budget over ready pods labelled app=a.
func TestBudgets(t *testing.T) {
	t.Parallel()
	refs := func(apiVersion, kind, name string, uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: new(true)}}
	}
	// pods creates n ready pods with these owner references.
	pods := func(api *apitest.API, n int, owners []metav1.OwnerReference) {
		for range n {
			p := owned(fmt.Sprint("p", len(apitest.List[*corev1.Pod](api, "default"))), "a")
			p.OwnerReferences = owners
			api.Create(p)
			api.Phase(p, corev1.PodRunning, true)
		}
	}
	// set creates a ReplicaSet, and returns an owner reference to it.
	set := func(api *apitest.API, name string, n int32, owners ...metav1.OwnerReference) []metav1.OwnerReference {
		rs := replicaSet(name, n)
		rs.OwnerReferences = owners
		api.Create(rs)
		return []metav1.OwnerReference{*metav1.NewControllerRef(apitest.Existing[*appsv1.ReplicaSet](api, "default", name),
			appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	}
	most := func(v string) func(*policyv1.PodDisruptionBudgetSpec) {
		return func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = new(intstr.Parse(v)) }
	}
	least := func(v string) func(*policyv1.PodDisruptionBudgetSpec) {
		return func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = new(intstr.Parse(v)) }
	}
	selecting := func(selector *metav1.LabelSelector) func(*policyv1.PodDisruptionBudgetSpec) {
		return func(s *policyv1.PodDisruptionBudgetSpec) {
			s.MinAvailable, s.Selector = new(intstr.FromInt32(1)), selector
		}
	}
	for name, c := range map[string]struct {
		spec  func(*policyv1.PodDisruptionBudgetSpec)
		do    func(api *apitest.API)
		want  string // currentHealthy/desiredHealthy of expectedPods, disruptionsAllowed
		event string // the reason of the only Event, apart from NoPods
	}{
		"no pods":                             {least("1"), func(*apitest.API) {}, "0/1 of 0, 0", ""},
		"minAvailable, pods without an owner": {least("1"), func(api *apitest.API) { pods(api, 3, nil) }, "3/1 of 3, 2", ""},
		"minAvailable in percent, pods without an owner": {least("50%"), func(api *apitest.API) { pods(api, 3, nil) },
			"3/0 of 0, 0", "UnmanagedPods"},
		"maxUnavailable, pods without an owner": {most("1"), func(api *apitest.API) { pods(api, 3, nil) }, "3/0 of 0, 0",
			"UnmanagedPods"},
		"minAvailable above the number of pods": {least("10"), func(api *apitest.API) { pods(api, 3, nil) },
			"3/10 of 3, 0", ""},
		"minAvailable in percent of a scale": {least("50%"), func(api *apitest.API) { pods(api, 3, set(api, "x", 5)) },
			"3/3 of 5, 0", ""},
		"maxUnavailable, pods are missing": {most("2"), func(api *apitest.API) { pods(api, 3, set(api, "x", 5)) },
			"3/3 of 5, 0", ""},
		"maxUnavailable in percent, rounded up": {most("30%"), func(api *apitest.API) { pods(api, 7, set(api, "x", 7)) },
			"7/4 of 7, 3", ""},
		"maxUnavailable 0":    {most("0"), func(api *apitest.API) { pods(api, 2, set(api, "x", 2)) }, "2/2 of 2, 0", ""},
		"maxUnavailable 100%": {most("100%"), func(api *apitest.API) { pods(api, 2, set(api, "x", 2)) }, "2/0 of 2, 2", ""},
		"scaled down": {most("1"), func(api *apitest.API) {
			pods(api, 4, set(api, "x", 4))
			apitest.Change(api, replicaSet("x", 0), "", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = new(int32(2)) })
			api.EndPod(owned("p0", "a")) // as in upstream, a change of a pod wakes the budget, a change of the scale does not
		}, "3/1 of 2, 2", ""},
		"two owners": {most("50%"), func(api *apitest.API) {
			pods(api, 3, set(api, "x", 3))
			pods(api, 1,
				set(api, "y", 5))
		}, "4/4 of 8, 0", ""},
		"some without an owner": {most("1"), func(api *apitest.API) { pods(api, 2, set(api, "x", 2)); pods(api, 1, nil) },
			"3/1 of 2, 2", "UnmanagedPods"},
		"a Deployment's ReplicaSets count once": {most("1"), func(api *apitest.API) {
			d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d"},
				Spec: appsv1.DeploymentSpec{Replicas: new(int32(4)),
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}, Template: replicaSet("a",
						0).Spec.Template}}
			api.Create(d)
			ref := *metav1.NewControllerRef(apitest.Existing[*appsv1.Deployment](api, "default", "d"),
				appsv1.SchemeGroupVersion.WithKind("Deployment"))
			pods(api, 2, set(api, "old", 3, ref))
			pods(api, 2, set(api, "new", 2, ref))
		}, "4/3 of 4, 1", ""},
		"a custom kind with a scale": {most("1"),
			func(api *apitest.API) { pods(api, 5, refs("example.com/v1", "Widget", "w", "widget")) }, "5/4 of 5, 1", ""},
		"an owner that was replaced": {most("1"), func(api *apitest.API) {
			set(api, "x", 3)
			pods(api, 3,
				refs("apps/v1", "ReplicaSet", "x", "former"))
		}, "0/0 of 0, 0", "CalculateExpectedPodCountFailed"},
		"a deleted owner": {most("1"),
			func(api *apitest.API) { pods(api, 3, refs("apps/v1", "ReplicaSet", "x", "former")) }, "0/0 of 0, 0",
			"CalculateExpectedPodCountFailed"},
		"a deleted owner, minAvailable": {least("1"),
			func(api *apitest.API) { pods(api, 3, refs("apps/v1", "ReplicaSet", "x", "former")) }, "3/1 of 3, 2", ""},
		"an owner of an unknown kind": {most("1"),
			func(api *apitest.API) { pods(api, 3, refs("example.com/v1", "Gadget", "g", "g")) }, "0/0 of 0, 0",
			"CalculateExpectedPodCountFailed"},
		"terminating, failed and unready pods": {least("1"), func(api *apitest.API) {
			pods(api, 4, nil)
			api.Phase(owned("p0", "a"), corev1.PodRunning, false)
			api.Phase(owned("p1", "a"), corev1.PodFailed, false)
			apitest.Change(api, owned("p2", "a"), "binding", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
			api.Delete(owned("p2", "a"), "")
		}, "1/1 of 4, 0", ""},
		"an empty selector selects pods without labels": {selecting(&metav1.LabelSelector{}), func(api *apitest.API) {
			pods(api, 1, nil)
			api.Create(apitest.Pod("default", "bare"))
			api.Phase(apitest.Pod("default", "bare"), corev1.PodRunning, true)
		}, "2/1 of 2, 1", ""},
		"no selector": {selecting(nil), func(api *apitest.API) { pods(api, 1, nil) }, "0/1 of 0, 0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				api.Events.Watch()
				deps := api.Deps()
				deps.Client = withWidgets{api.Client}
				api.Run(New(deps, &api.Events, kinds))
				api.Create(budget("a", c.spec))
				synctest.Wait()
				c.do(api)
				synctest.Wait()
				b := apitest.Existing[*policyv1.PodDisruptionBudget](api, "default", "a")
				s := b.Status
				if got := fmt.Sprintf("%d/%d of %d, %d", s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods,
					s.DisruptionsAllowed); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
				reason := policyv1.InsufficientPodsReason
				switch {
				case s.DisruptionsAllowed > 0:
					reason = policyv1.SufficientPodsReason
				case c.event == "CalculateExpectedPodCountFailed":
					reason = policyv1.SyncFailedReason
				}
				if d := meta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition); d == nil ||
					d.Reason != reason || d.ObservedGeneration != b.Generation || s.ObservedGeneration != b.Generation {
					t.Errorf("conditions %+v, want %s", s.Conditions, reason)
				}
				events := api.Events.Count()
				delete(events, "NoPods")
				if c.event == "" && len(events) > 0 || c.event != "" && (events[c.event] == 0 || len(events) > 1) {
					t.Errorf("events %v, want %s", events, c.event)
				}
			})
		})
	}
}

// An evicted pod that was not deleted counts as healthy again after two minutes.
func TestAnnouncedAndNotDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		api.Run(New(api.Deps(), &api.Events, apitest.Kinds()))
		b := budget("a", func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = new(intstr.FromInt32(1)) })
		api.Create(b)
		for _, name := range []string{"p", "q"} {
			api.Create(owned(name, "a"))
			api.Phase(owned(name, "a"), corev1.PodRunning, true)
		}
		synctest.Wait()
		apitest.Change(api, b, "status", func(b *policyv1.PodDisruptionBudget) {
			b.Status.DisruptionsAllowed--
			b.Status.DisruptedPods = map[string]metav1.Time{"p": metav1.Now(), "gone": metav1.Now()}
		})
		for _, step := range []struct {
			wait    time.Duration
			allowed int32
			waited  int
		}{{0, 0, 1}, {deletionTimeout - time.Second, 0, 1}, {time.Second, 1, 0}} {
			apitest.Settle(step.wait)
			s := apitest.Existing[*policyv1.PodDisruptionBudget](api, "default", "a").Status
			if s.DisruptionsAllowed != step.allowed || len(s.DisruptedPods) != step.waited {
				t.Errorf("after another %v: %d allowed, disrupted pods %v", step.wait, s.DisruptionsAllowed, s.DisruptedPods)
			}
		}
		if api.Events.Count()["NotDeleted"] != 1 {
			t.Error("no NotDeleted Event")
		}
	})
}
