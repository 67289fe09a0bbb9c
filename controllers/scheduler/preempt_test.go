package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
)

// class returns a PriorityClass.
func class(name string, value int32, policy corev1.PreemptionPolicy) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{TypeMeta: metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1",
		Kind: "PriorityClass"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: &policy}
}

func of(class string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.PriorityClassName = class }
}

// running sets the status of running pods, as the agent does.
func running(api *apitest.API, names ...string) {
	for _, name := range names {
		apitest.Change(api, apitest.Pod("default", name), "status", func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.StartTime = new(metav1.Now())
		})
	}
}

// ended completes the deletion of a pod.
func ended(api *apitest.API, name string) {
	if _, err := api.Client.Delete(api.T.Context(), refOf(name),
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		api.T.Fatal(err)
	}
}

func deleting(api *apitest.API, name string) bool {
	p, ok := apitest.Get[*corev1.Pod](api, "default", name)
	return ok && p.DeletionTimestamp != nil
}

func TestPreemptorIsNominated(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "n")
		api.Create(class("high", 1000, corev1.PreemptLowerPriority), class("low", -10, corev1.PreemptLowerPriority),
			apitest.Pod("default", "a", wants("cpu", "2"), of("low")), apitest.Pod("default", "b", wants("cpu", "2")))
		synctest.Wait()
		running(api, "a", "b")
		api.Events.Count()
		api.Create(apitest.Pod("default", "p", wants("cpu", "2"), of("high")))
		synctest.Wait()
		p, _ := apitest.Get[*corev1.Pod](api, "default", "p")
		if p.Status.NominatedNodeName != "n" || whyNot(api, "p") != "0/1 nodes are available: 1 Insufficient cpu." {
			t.Errorf("nominated for %q, message %q", p.Status.NominatedNodeName, whyNot(api, "p"))
		}
		if !deleting(api, "a") || deleting(api, "b") {
			t.Fatal("the pod with the lower priority is not being deleted")
		}
		victim, _ := apitest.Get[*corev1.Pod](api, "default", "a")
		c := podstate.Condition(victim, corev1.DisruptionTarget)
		if c == nil || c.Reason != "PreemptionByScheduler" ||
			c.Message != "default-scheduler: preempting to accommodate a higher priority pod" {
			t.Errorf("the victim's condition is %+v", c)
		}
		if n := api.Events.Count(); n["Preempted"] != 1 || n["FailedScheduling"] != 1 {
			t.Errorf("events %v", n)
		}
		// The resources stay reserved for the preemptor: a pod of lower priority does not get them.
		api.Create(apitest.Pod("default", "thief", wants("cpu", "2")))
		synctest.Wait()
		ended(api, "a")
		synctest.Wait()
		if nodeOf(api, "p") != "n" || nodeOf(api, "thief") != "" {
			t.Errorf("p on %q, thief on %q", nodeOf(api, "p"), nodeOf(api, "thief"))
		}
		p, _ = apitest.Get[*corev1.Pod](api, "default", "p")
		if p.Status.NominatedNodeName != "" {
			t.Errorf("still nominated for %q after it was bound", p.Status.NominatedNodeName)
		}
	})
}

func TestPreemptorWaitsForItsVictims(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "m", "n")
		api.Create(class("high", 1000, corev1.PreemptLowerPriority),
			apitest.Pod("default", "a", wants("cpu", "4")), apitest.Pod("default", "b", wants("cpu", "4")))
		synctest.Wait()
		running(api, "a", "b")
		api.Create(apitest.Pod("default", "p", wants("cpu", "3"), of("high")))
		synctest.Wait()
		apitest.Change(api, apitest.Pod("default", "p"), "",
			func(p *corev1.Pod) { p.Labels = map[string]string{"new": "label"} })
		apitest.Settle(time.Minute)
		if deleting(api, "a") == deleting(api, "b") {
			t.Errorf("deleting a: %t, b: %t; want one of them", deleting(api, "a"), deleting(api, "b"))
		}
		want := "0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to a terminating pod on the " +
			"nominated node."
		if why := whyNot(api, "p"); why != want {
			t.Errorf("message %q", why)
		}
	})
}

func TestNeverPreemptsByPolicy(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "n")
		api.Create(class("polite", 1000, corev1.PreemptNever), apitest.Pod("default", "a", wants("cpu", "4")))
		synctest.Wait()
		api.Create(apitest.Pod("default", "p", wants("cpu", "1"), of("polite")))
		want := "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
		if why := whyNot(api, "p"); why != want || deleting(api, "a") {
			t.Errorf("message %q, victim deleted: %t", why, deleting(api, "a"))
		}
	})
}

func TestPreemptionAvoidsViolatedBudgets(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "m", "n")
		api.Create(class("high", 1000, corev1.PreemptLowerPriority), class("low", -10, corev1.PreemptLowerPriority),
			&policyv1.PodDisruptionBudget{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "keep"},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "kept"}}}},
			apitest.Pod("default", "kept", wants("cpu", "4"), of("low"), app("kept")),
			apitest.Pod("default", "other", wants("cpu", "4")))
		synctest.Wait()
		running(api, "kept", "other")
		api.Create(apitest.Pod("default", "p", wants("cpu", "4"), of("high")))
		synctest.Wait()
		if deleting(api, "kept") || !deleting(api, "other") {
			t.Errorf("kept deleted: %t, other deleted: %t", deleting(api, "kept"), deleting(api, "other"))
		}
	})
}
