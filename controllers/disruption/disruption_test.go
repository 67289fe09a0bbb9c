package disruption

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAsk(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		min, max  string
		expected  int32
		healthy   int32
		wantScale bool
	}{
		{min: "2", expected: 5, healthy: 2},
		{min: "50%", expected: 5, healthy: 3, wantScale: true},
		{min: "100%", expected: 5, healthy: 5, wantScale: true},
		{max: "1", expected: 5, healthy: 4, wantScale: true},
		{max: "7", expected: 5, healthy: 0, wantScale: true},
		{max: "0", expected: 5, healthy: 5, wantScale: true},
		{max: "30%", expected: 5, healthy: 3, wantScale: true},
		{expected: 5, healthy: 0},
	} {
		s := &policyv1.PodDisruptionBudgetSpec{}
		if tc.min != "" {
			s.MinAvailable = new(intstr.Parse(tc.min))
		}
		if tc.max != "" {
			s.MaxUnavailable = new(intstr.Parse(tc.max))
		}
		got, err := demandOf(s, tc.expected)
		if err != nil || got.healthy != tc.healthy || got.expected != tc.expected || byScale(s) != tc.wantScale {
			t.Errorf("minAvailable %q, maxUnavailable %q, %d expected: %+v, %v, byScale %v", tc.min, tc.max, tc.expected, got,
				err, byScale(s))
		}
	}
	if _, err := demandOf(&policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromString("half"))}, 5); err == nil {
		t.Error("minAvailable \"half\" was accepted")
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	now := time.Now()
	pod := func(name string, ready, deleted bool) *corev1.Pod {
		return apitest.Pod("default", name, func(p *corev1.Pod) {
			if ready {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			}
			if deleted {
				p.DeletionTimestamp = new(metav1.NewTime(now))
			}
		})
	}
	pods := []*corev1.Pod{pod("a", true, false), pod("b", true, false), pod("c", true, false), pod("sick", false, false),
		pod("leaving", true, true), pod("stays", true, false)}
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	b.Status.DisruptedPods = map[string]metav1.Time{
		"c": metav1.NewTime(now.Add(-time.Minute)), "leaving": metav1.NewTime(now), "gone": metav1.NewTime(now),
		"stays": metav1.NewTime(now.Add(-deletionTimeout)),
	}
	late := overdue(b, pods, now)
	if len(late) != 1 || late[0].Name != "stays" {
		t.Errorf("overdue: %v", late)
	}
	again := setStatus(b, pods, demand{expected: 6, healthy: 2}, now)
	s := b.Status
	if again.Round(time.Second) != time.Minute || len(s.DisruptedPods) != 1 || s.CurrentHealthy != 3 ||
		s.DesiredHealthy != 2 || s.ExpectedPods != 6 || s.DisruptionsAllowed != 1 || s.ObservedGeneration != 3 {
		t.Errorf("next sync in %v, status %+v", again, s)
	}
	if !meta.IsStatusConditionTrue(s.Conditions, policyv1.DisruptionAllowedCondition) {
		t.Errorf("conditions %+v", s.Conditions)
	}
	setStatus(b, nil, demand{}, now)
	if b.Status.DisruptionsAllowed != 0 || meta.IsStatusConditionTrue(b.Status.Conditions,
		policyv1.DisruptionAllowedCondition) {
		t.Errorf("without pods: %+v", b.Status)
	}
}

func budget(name string, change func(*policyv1.PodDisruptionBudgetSpec)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
	}
	change(&b.Spec)
	return b
}

func replicaSet(name string, replicas int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	return &appsv1.ReplicaSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}},
	}
}

func owned(name, app string, by ...*metav1.OwnerReference) *corev1.Pod {
	return apitest.Pod("default", name, func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": app}
		for _, o := range by {
			p.OwnerReferences = append(p.OwnerReferences, *o)
		}
	})
}

func TestBudgetsFollowTheirPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		api.Run(New(api.Deps(), &api.Events, apitest.Kinds()))
		status := func(name string) policyv1.PodDisruptionBudgetStatus {
			t.Helper()
			synctest.Wait()
			b, ok := apitest.Get[*policyv1.PodDisruptionBudget](api, "default", name)
			if !ok {
				t.Fatalf("no PodDisruptionBudget %s", name)
			}
			if b.Status.ObservedGeneration != b.Generation {
				t.Errorf("%s: observedGeneration %d, want %d", name, b.Status.ObservedGeneration, b.Generation)
			}
			return b.Status
		}
		api.Create(replicaSet("web", 4))
		rs, _ := apitest.Get[*appsv1.ReplicaSet](api, "default", "web")
		owner := metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
		api.Create(budget("web",
			func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = new(intstr.FromString("25%")) }))
		if s := status("web"); s.DisruptionsAllowed != 0 || s.ExpectedPods != 0 {
			t.Errorf("without pods: %+v", s)
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			api.Create(owned(name, "web", owner))
			api.Phase(owned(name, "web"), corev1.PodRunning, true)
		}
		if s := status("web"); s.DisruptionsAllowed != 1 || s.ExpectedPods != 4 || s.DesiredHealthy != 3 ||
			s.CurrentHealthy != 4 {
			t.Errorf("4 of 4 pods are ready: %+v", s)
		}
		api.Phase(owned("a", "web"), corev1.PodRunning, false)
		if s := status("web"); s.DisruptionsAllowed != 0 || s.CurrentHealthy != 3 {
			t.Errorf("3 of 4 pods are ready: %+v", s)
		}
		apitest.Change(api, budget("web", func(*policyv1.PodDisruptionBudgetSpec) {}), "",
			func(b *policyv1.PodDisruptionBudget) {
				b.Spec.MaxUnavailable, b.Spec.MinAvailable = nil, new(intstr.FromInt32(1))
			})
		if s := status("web"); s.DisruptionsAllowed != 2 || s.DesiredHealthy != 1 {
			t.Errorf("minAvailable 1: %+v", s)
		}
		before := api.Store.Revision()
		apitest.Settle(time.Hour)
		if api.Store.Revision() != before {
			t.Error("the idle controller wrote")
		}
		if events := api.Events.Count(); events["NoPods"] != 1 {
			t.Errorf("events %v", events)
		}
	})
}

func TestPodsWithoutScale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		api.Create(owned("alone", "alone"), owned("job", "job", &metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job",
			Name: "j", UID: "u", Controller: new(true)}))
		api.Create(budget("alone", func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = new(intstr.FromInt32(1)) }))
		api.Create(budget("job",
			func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = new(intstr.FromString("10%")) }))
		api.Run(New(api.Deps(), &api.Events, apitest.Kinds()))
		apitest.Settle(time.Second)
		events := api.Events.Count()
		if events["UnmanagedPods"] == 0 || events["CalculateExpectedPodCountFailed"] == 0 {
			t.Errorf("events %v", events)
		}
		b, _ := apitest.Get[*policyv1.PodDisruptionBudget](api, "default", "job")
		c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
		if c == nil || c.Reason != policyv1.SyncFailedReason ||
			c.Message != "batch/v1 Job does not implement the scale subresource" {
			t.Errorf("condition %+v", c)
		}
		if b.Status.ObservedGeneration != 0 || c != nil && c.ObservedGeneration != 0 {
			t.Errorf("observedGeneration %d after a failed sync, want 0", b.Status.ObservedGeneration)
		}
	})
}

// A pod that two budgets match cannot be evicted; one Event reports it when the pod is bound.
func TestPodOfTwoBudgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		for _, name := range []string{"a", "b"} {
			b := budget(name, func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = new(intstr.FromInt32(1)) })
			b.Spec.Selector.MatchLabels = map[string]string{"app": "p"}
			api.Create(b)
		}
		api.Create(owned("p", "p"), owned("q", "other"))
		api.Run(New(api.Deps(), &api.Events, apitest.Kinds()))
		for _, name := range []string{"p", "q"} {
			apitest.Change(api, owned(name, name), "binding", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
		}
		api.Phase(owned("p", "p"), corev1.PodRunning, true)
		synctest.Wait()
		if events := api.Events.Count(); events["MultiplePodDisruptionBudgets"] != 1 {
			t.Errorf("events %v", events)
		}
	})
}
