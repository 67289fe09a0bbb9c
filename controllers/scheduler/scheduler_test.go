package scheduler

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within runs a test with a running scheduler.
func within(t *testing.T, test func(t *testing.T, api *apitest.API)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		c, err := New(api.Deps(), &api.Events, Config{})
		if err != nil {
			t.Fatal(err)
		}
		api.Run(c)
		test(t, api)
	})
}

func nodeOf(api *apitest.API, name string) string {
	p, _ := apitest.Get[*corev1.Pod](api, "default", name)
	if p == nil {
		return "gone"
	}
	return p.Spec.NodeName
}

func TestBindsWhenANodeBecomesReady(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(apitest.Pod("default", "p"))
		synctest.Wait()
		p, _ := apitest.Get[*corev1.Pod](api, "default", "p")
		c := podstate.Condition(p, corev1.PodScheduled)
		if c == nil || c.Status != corev1.ConditionFalse || c.Reason != "Unschedulable" ||
			c.Message != "no nodes available to schedule pods" {
			t.Fatalf("condition %+v", c)
		}
		api.Create(apitest.Node("n"))
		api.Ready("n", corev1.ConditionTrue)
		synctest.Wait()
		p, _ = apitest.Get[*corev1.Pod](api, "default", "p")
		if c := podstate.Condition(p, corev1.PodScheduled); p.Spec.NodeName != "n" || c == nil ||
			c.Status != corev1.ConditionTrue {
			t.Errorf("node %q, condition %+v", p.Spec.NodeName, c)
		}
		if c := api.Events.Count(); c["Scheduled"] != 1 || c["FailedScheduling"] == 0 {
			t.Errorf("events %v", c)
		}
	})
}

// Each attempt to schedule a pod that waits for hours renews its FailedScheduling Event.
func TestEventsOfPodsThatWaitForLong(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(apitest.Pod("default", "p"))
		apitest.Settle(time.Hour)
		api.Events.Count() // resets the counts
		apitest.Settle(time.Hour)
		if n := api.Events.Count()["FailedScheduling"]; n < 5 {
			t.Errorf("%d FailedScheduling Events in the second hour", n)
		}
	})
}

func TestNeverOvercommitsAndUsesFreedResources(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(apitest.Node("n"))
		api.Ready("n", corev1.ConditionTrue)
		for i := range 10 {
			api.Create(apitest.Pod("default", fmt.Sprint("p", i), wants("cpu", "1")))
		}
		synctest.Wait()
		bound := func() (names []string) {
			for _, p := range apitest.List[*corev1.Pod](api, "default") {
				if p.Spec.NodeName != "" && !podstate.Finished(p) {
					names = append(names, p.Name)
				}
			}
			return names
		}
		if got := bound(); len(got) != 4 {
			t.Fatalf("bound %v on a node of 4 CPUs", got)
		}
		first := apitest.Pod("default", bound()[0])
		api.Phase(first, corev1.PodSucceeded, false)
		synctest.Wait()
		if got := bound(); len(got) != 4 {
			t.Errorf("after one pod has finished: %v", got)
		}
		var why string
		for _, p := range apitest.List[*corev1.Pod](api, "default") {
			if p.Spec.NodeName == "" {
				why = podstate.Condition(p, corev1.PodScheduled).Message
			}
		}
		if why != "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption "+
			"victims found for incoming pod." {
			t.Errorf("message %q", why)
		}
		before := api.Store.Revision()
		apitest.Change(api, apitest.Node("n"), "", func(n *corev1.Node) { n.Labels = map[string]string{"new": "label"} })
		apitest.Settle(time.Hour)
		if writes := api.Store.Revision() - before; writes != 1 {
			t.Errorf("%d writes after a change of a label, want none", writes-1)
		}
	})
}

func TestPodsOfOtherSchedulersAreIgnored(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(apitest.Node("n"))
		api.Ready("n", corev1.ConditionTrue)
		api.Create(
			apitest.Pod("default", "other", func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }),
			apitest.Pod("default", "gated", func(p *corev1.Pod) {
				p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
			}))
		synctest.Wait()
		if nodeOf(api, "other") != "" || nodeOf(api, "gated") != "" {
			t.Errorf("bound: other to %q, gated to %q", nodeOf(api, "other"), nodeOf(api, "gated"))
		}
		apitest.Change(api, apitest.Pod("default", "gated"), "", func(p *corev1.Pod) { p.Spec.SchedulingGates = nil })
		synctest.Wait()
		if nodeOf(api, "gated") != "n" {
			t.Error("not bound after its gate was removed")
		}
	})
}

func TestNotReadyNodeBecomesReady(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(apitest.Node("n"))
		api.Ready("n", corev1.ConditionFalse)
		api.Create(apitest.Pod("default", "p"))
		synctest.Wait()
		p, _ := apitest.Get[*corev1.Pod](api, "default", "p")
		if c := podstate.Condition(p, corev1.PodScheduled); c == nil ||
			c.Message != "0/1 nodes are available: 1 node(s) had untolerated taint(s). preemption: 0/1 nodes are available: "+
				"1 Preemption is not helpful for scheduling." {
			t.Errorf("condition %+v", c)
		}
		api.Ready("n", corev1.ConditionTrue)
		synctest.Wait()
		if nodeOf(api, "p") != "n" {
			t.Error("not bound after the node became ready")
		}
	})
}

func TestFreedResourcesGoToHighestPriority(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(apitest.Node("n"))
		api.Ready("n", corev1.ConditionTrue)
		all := wants("cpu", "4")
		api.Create(apitest.Pod("default", "first", all))
		synctest.Wait()
		api.Create(apitest.Pod("default", "low", all))
		apitest.Settle(time.Minute)
		api.Create(apitest.Pod("default", "high", all,
			func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" }))
		synctest.Wait()
		api.Phase(apitest.Pod("default", "first"), corev1.PodSucceeded, false)
		synctest.Wait()
		if nodeOf(api, "high") != "n" || nodeOf(api, "low") != "" {
			t.Errorf("high on %q, low on %q", nodeOf(api, "high"), nodeOf(api, "low"))
		}
	})
}

func TestWaitsForPodOfItsAffinity(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(apitest.Node("n"))
		apitest.Change(api, apitest.Node("n"), "", func(n *corev1.Node) { n.Labels = map[string]string{"disk": "ssd"} })
		api.Ready("n", corev1.ConditionTrue)
		api.Create(apitest.Pod("default", "follower", together("x")))
		synctest.Wait()
		if nodeOf(api, "follower") != "" {
			t.Fatal("bound before a pod of its affinity exists")
		}
		api.Create(apitest.Pod("default", "leader", app("x")))
		synctest.Wait()
		if nodeOf(api, "follower") != "n" {
			t.Error("not bound after a pod of its affinity was bound")
		}
	})
}
