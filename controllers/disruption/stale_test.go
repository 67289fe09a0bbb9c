package disruption

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
)

func TestStaleConditions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(New(api.Deps(), &api.Events, apitest.Kinds()))
		disrupted := func(name, reason string, phase corev1.PodPhase) {
			p := apitest.Pod("default", name)
			api.Create(p)
			apitest.Change(api, p, "status", func(p *corev1.Pod) {
				p.Status.Phase = phase
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
					Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now(),
				})
			})
		}
		expect := func(name string, want corev1.ConditionStatus) {
			t.Helper()
			p, _ := apitest.Get[*corev1.Pod](api, "default", name)
			if c := podstate.Condition(p, corev1.DisruptionTarget); c == nil || c.Status != want ||
				(c.Reason == "") != (want == corev1.ConditionFalse) {
				t.Errorf("%s: %+v", name, c)
			}
		}
		disrupted("stays", "EvictionByEvictionAPI", corev1.PodRunning)
		disrupted("kubelet", corev1.PodReasonTerminationByKubelet, corev1.PodRunning)
		disrupted("failed", "EvictionByEvictionAPI", corev1.PodFailed)
		apitest.Settle(time.Minute)
		disrupted("later", "PreemptionByScheduler", corev1.PodPending)
		apitest.Settle(staleTimeout - time.Minute - 2*time.Second) // the API rounds times to seconds
		expect("stays", corev1.ConditionTrue)
		apitest.Settle(4 * time.Second)
		expect("stays", corev1.ConditionFalse)
		expect("later", corev1.ConditionTrue)
		apitest.Settle(time.Minute)
		expect("later", corev1.ConditionFalse)
		expect("kubelet", corev1.ConditionTrue)
		expect("failed", corev1.ConditionTrue)
		before := api.Store.Revision()
		apitest.Settle(time.Hour)
		if api.Store.Revision() != before {
			t.Error("the idle controller wrote")
		}
	})
}
