package registry_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/store"
)

var budgets = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")

// withBudgets returns all resources; budgets have no Prepare and Validate.
func withBudgets() []registry.Resource {
	all := registry.Resources()
	for i := range all {
		if all[i].GVR == budgets {
			all[i].Prepare, all[i].Validate = nil, nil
			return all
		}
	}
	return append(all,
		registry.Resource{GVR: budgets, Kind: "PodDisruptionBudget", Namespaced: true, Subresources: kind.Parts("status"),
			New: func() registry.Object { return &policyv1.PodDisruptionBudget{} }})
}

// evicting returns a registry with one pod "p", which has the label app=a and the phase.
func evicting(t *testing.T, phase corev1.PodPhase, ready bool,
	all ...*policyv1.PodDisruptionBudget) *registry.Registry {
	t.Helper()
	resources := withBudgets()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	r := registry.New(s, resources, registry.Config{})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		if _, err := r.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: map[string]string{"app": "a"}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if _, err := r.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	_, err := r.Update(t.Context(), victim().Status(), func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(*corev1.Pod)
		next.Status.Phase = phase
		if ready {
			next.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		return next, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func victim() client.Ref { return client.Ref{Resource: client.Pods, Namespace: "default", Name: "p"} }

func budget(name string, allowed int32, change ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, CurrentHealthy: 2, DesiredHealthy: 3},
	}
	for _, f := range change {
		f(b)
	}
	return b
}

func evict(t *testing.T, r *registry.Registry, opts *metav1.DeleteOptions) error {
	t.Helper()
	_, err := r.Update(t.Context(), victim().Sub("eviction"), func(cur client.Object) (client.Object, error) {
		e := cur.(*policyv1.Eviction)
		e.DeleteOptions = opts
		return e, nil
	})
	return err
}

func TestEviction(t *testing.T) {
	t.Parallel()
	always := func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow) }
	enough := func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy = 3 }
	unseen := func(b *policyv1.PodDisruptionBudget) { b.Status.ObservedGeneration = -1 }
	other := func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector.MatchLabels["app"] = "b" }
	failed := func(b *policyv1.PodDisruptionBudget) {
		b.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
			Reason: policyv1.SyncFailedReason, Message: "no scale"}}
	}
	for name, c := range map[string]struct {
		phase   corev1.PodPhase
		ready   bool
		budgets []*policyv1.PodDisruptionBudget
		code    int32
		cause   string
	}{
		"no budget":            {corev1.PodRunning, true, nil, 0, ""},
		"budget of other pods": {corev1.PodRunning, true, []*policyv1.PodDisruptionBudget{budget("b", 0, other)}, 0, ""},
		"allowed":              {corev1.PodRunning, true, []*policyv1.PodDisruptionBudget{budget("b", 1)}, 0, ""},
		"no disruption allowed": {corev1.PodRunning, true, []*policyv1.PodDisruptionBudget{budget("b", 0)}, 429,
			"The disruption budget b needs 3 healthy pods and has 2 currently"},
		"sync failed": {corev1.PodRunning, true, []*policyv1.PodDisruptionBudget{budget("b", 0, failed)}, 429,
			"The disruption budget b does not allow evicting pods currently because it failed sync: no scale"},
		"not observed yet": {corev1.PodRunning, true, []*policyv1.PodDisruptionBudget{budget("b", 1, unseen)}, 429,
			"The disruption budget b is still being processed by the server."},
		"two budgets": {corev1.PodRunning, true, []*policyv1.PodDisruptionBudget{budget("a", 1), budget("b", 1)}, 500, ""},
		"pending":     {corev1.PodPending, false, []*policyv1.PodDisruptionBudget{budget("b", 0)}, 0, ""},
		"failed":      {corev1.PodFailed, false, []*policyv1.PodDisruptionBudget{budget("b", 0)}, 0, ""},
		"not ready, no disruption allowed": {corev1.PodRunning, false, []*policyv1.PodDisruptionBudget{budget("b", 0)}, 429,
			"needs 3 healthy pods"},
		"not ready, AlwaysAllow": {corev1.PodRunning, false, []*policyv1.PodDisruptionBudget{budget("b", 0, always)}, 0, ""},
		"not ready, enough healthy pods": {corev1.PodRunning, false, []*policyv1.PodDisruptionBudget{budget("b", 0,
			enough)}, 0,
			""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := evicting(t, c.phase, c.ready, c.budgets...)
			err := evict(t, r, nil)
			if c.code != 0 {
				wantStatus(t, err, c.code, c.cause)
			} else if err != nil {
				t.Error(err)
			}
			pod, err := client.Get[*corev1.Pod](t.Context(), r, "default", "p")
			if still := err == nil && pod.DeletionTimestamp == nil; still != (c.code != 0) {
				t.Errorf("the pod still exists: %v", still)
			}
			if err == nil && c.code == 0 && c.phase == corev1.PodRunning && !disrupted(pod) {
				t.Errorf("conditions %v", pod.Status.Conditions)
			}
		})
	}
}

func disrupted(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI" {
			return true
		}
	}
	return false
}

// wantStatus checks the code of an API error and the message of a cause.
func wantStatus(t *testing.T, err error, code int32, cause string) {
	t.Helper()
	var api apierrors.APIStatus
	if !errors.As(err, &api) || api.Status().Code != code {
		t.Fatalf("got %v, want %d", err, code)
	}
	if code == http.StatusTooManyRequests {
		d := api.Status().Details
		if d == nil || len(d.Causes) != 1 || d.Causes[0].Type != policyv1.DisruptionBudgetCause ||
			!strings.Contains(d.Causes[0].Message, cause) {
			t.Errorf("details %+v, want %s", d, cause)
		}
	}
}

// An eviction decrements the budget's allowed disruptions.
func TestEvictionUsesBudget(t *testing.T) {
	t.Parallel()
	r := evicting(t, corev1.PodRunning, true, budget("b", 1))
	read := func() *policyv1.PodDisruptionBudget {
		obj, err := r.Get(t.Context(), client.Ref{Resource: budgets, Namespace: "default", Name: "b"})
		if err != nil {
			t.Fatal(err)
		}
		return obj.(*policyv1.PodDisruptionBudget)
	}
	if err := evict(t, r, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil ||
		read().Status.DisruptionsAllowed != 1 {
		t.Errorf("a dry run: %v, %+v", err, read().Status)
	}
	err := evict(t, r, &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")})
	if !apierrors.IsConflict(err) || read().Status.DisruptionsAllowed != 1 {
		t.Errorf("another pod: %v, %+v", err, read().Status)
	}
	if err := evict(t, r, nil); err != nil {
		t.Fatal(err)
	}
	if s := read().Status; s.DisruptionsAllowed != 0 || len(s.DisruptedPods) != 1 || len(s.Conditions) != 1 {
		t.Errorf("the budget: %+v", s)
	}
}
