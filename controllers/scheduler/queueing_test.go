package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

// unbinding is a client whose first bindings fail. It counts all attempts.
type unbinding struct {
	client.Client
	fails atomic.Int64
	tries atomic.Int64
}

// Update implements client.Client.
func (u *unbinding) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	if ref.Subresource == "binding" {
		u.tries.Add(1)
		if u.fails.Add(-1) >= 0 {
			return nil, errors.New("injected")
		}
	}
	return u.Client.Update(ctx, ref, change)
}

// withBrokenBinding returns a scheduler whose first bindings fail, and its client.
func withBrokenBinding(api *apitest.API, fails int64) (*Controller, *unbinding) {
	deps := api.Deps()
	broken := &unbinding{Client: api.Client}
	broken.fails.Store(fails)
	deps.Client = broken
	return apitest.Must(New(deps, &api.Events, Config{})), broken
}

func TestFailedBindingIsRetriedWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		c, broken := withBrokenBinding(api, 6)
		api.Run(c)
		addNodes(api, "n")
		synctest.Wait() // this client does not order kinds, so wait until the scheduler knows the node
		api.Create(apitest.Pod("default", "p", wants("cpu", "4")))
		synctest.Wait()
		for i, pause := range []time.Duration{1, 2, 4, 8, 10, 10} {
			if got := broken.tries.Load(); got != int64(i+1) || nodeOf(api, "p") != "" {
				t.Fatalf("%d attempts before pause %d", got, i)
			}
			apitest.Settle(pause*time.Second - 1)
			if got := broken.tries.Load(); got != int64(i+1) {
				t.Fatalf("%d attempts within pause %d", got, i)
			}
			apitest.Settle(1)
		}
		if nodeOf(api, "p") != "n" {
			t.Error("not bound after the last failure")
		}
	})
}

func TestFailedBindingReleasesResources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		c, _ := withBrokenBinding(api, 1)
		addNodes(api, "n")
		api.Create(apitest.Pod("default", "p", wants("cpu", "4")), apitest.Pod("default", "q", wants("cpu", "4")))
		api.Run(c)
		synctest.Wait()
		if bound := nodeOf(api, "p") + nodeOf(api, "q"); bound != "n" {
			t.Errorf("bound to %q before the backoff was over", bound)
		}
		apitest.Settle(time.Minute)
	})
}

func TestUnschedulablePodIsRetriedAfterFiveMinutes(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "n")
		api.Create(apitest.Pod("default", "large", wants("cpu", "40")))
		synctest.Wait()
		for range 5 {
			before := reconciles(api)
			apitest.Settle(5*time.Minute - time.Second)
			if n := reconciles(api) - before; n != 0 {
				t.Fatalf("%d reconciles within 5 minutes", n)
			}
			apitest.Settle(time.Second)
			if n := reconciles(api) - before; n != 1 {
				t.Fatalf("%d reconciles after 5 minutes, want one", n)
			}
		}
	})
}

// TestChangeWakesOnlyPodsItMayHelp tests which of four pods, each unschedulable for another reason, a change wakes.
func TestChangeWakesOnlyPodsItMayHelp(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "a", "b")
		api.Create(apitest.Pod("default", "first", wants("cpu", "3"), app("x")),
			apitest.Pod("default", "second", wants("cpu", "3")))
		synctest.Wait()
		waiting := map[string]func(*corev1.Pod){
			"cpu":      wants("cpu", "3"),
			"selector": func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"host": "c"} },
			"claim":    using("absent"),
			"company":  together("y"),
		}
		for name, change := range waiting {
			api.Create(apitest.Pod("default", name, change))
		}
		synctest.Wait()
		for _, step := range []struct {
			what  string
			do    func()
			wakes string
		}{
			{"a pod of another app", func() { api.Create(apitest.Pod("default", "z", app("z"))) }, ""},
			{"a class", func() { api.Create(newClass("c", "example.com/x", "Immediate")) }, ""},
			{"its claim", func() { api.Create(newClaim("absent", "c")) }, "claim"},
			{"another's claim", func() { api.Create(newClaim("other", "")) }, ""},
			{"a label", func() {
				apitest.Change(api, apitest.Node("a"), "", func(n *corev1.Node) { n.Labels["new"] = "label" })
			}, "company"},
			{"a small pod ends", func() { api.Phase(apitest.Pod("default", "z"), corev1.PodSucceeded, false) }, ""},
			{"a large pod ends", func() { api.Phase(apitest.Pod("default", "first"), corev1.PodSucceeded, false) }, "cpu"},
		} {
			apitest.Settle(11 * time.Second) // until no pod has a backoff
			before := attempts(api)
			step.do()
			apitest.Settle(time.Second)
			want := 0
			if step.wakes != "" {
				want = 1
			}
			if step.what == "a pod of another app" {
				want++ // the new pod's own attempt
			}
			if got := attempts(api) - before; got != want {
				t.Errorf("%s: %d attempts, want %d (%s)", step.what, got, want, step.wakes)
			}
		}
		if nodeOf(api, "cpu") != "a" {
			t.Error("the pod that waited for CPU was not bound")
		}
	})
}

// attempts returns the number of attempts, from the metric.
func attempts(api *apitest.API) int { return int(metric(api, "scheduler_schedule_attempts_total", "")) }

// metric sums the values of a metric over all series, or over those with a label of this value.
func metric(api *apitest.API, name, label string) (sum float64) {
	families, err := api.Registry.Gather()
	if err != nil {
		api.T.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			matches := label == ""
			for _, l := range m.Label {
				matches = matches || l.GetValue() == label
			}
			if matches {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func TestMetrics(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "n")
		api.Create(class("high", 1000, corev1.PreemptLowerPriority),
			apitest.Pod("default", "runs"), apitest.Pod("default", "large", wants("cpu", "40")),
			apitest.Pod("default", "fills", wants("cpu", "3")),
			apitest.Pod("default", "gated",
				func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }))
		synctest.Wait()
		running(api, "fills")
		api.Create(apitest.Pod("default", "urgent", wants("cpu", "3"), of("high")))
		synctest.Wait()
		for _, c := range []struct {
			name, label string
			want        float64
		}{
			{"scheduler_pending_pods", "active", 0}, {"scheduler_pending_pods", "backoff", 0},
			{"scheduler_pending_pods", "unschedulable", 2}, {"scheduler_pending_pods", "gated", 1},
			{"scheduler_unschedulable_pods", "NodeResourcesFit", 2},
			{"scheduler_schedule_attempts_total", "scheduled", 2}, {"scheduler_schedule_attempts_total", "unschedulable", 2},
			{"scheduler_pod_scheduling_sli_duration_seconds", "1", 2}, {"scheduler_pod_scheduling_attempts", "", 2},
			{"scheduler_scheduling_attempt_duration_seconds", "unschedulable", 2},
			{"scheduler_preemption_attempts_total", "", 2}, {"scheduler_preemption_victims", "", 1},
			{"scheduler_cache_size", "nodes", 1}, {"scheduler_cache_size", "pods", 2},
		} {
			if got := metric(api, c.name, c.label); got != c.want {
				t.Errorf("%s{%s} is %v, want %v", c.name, c.label, got, c.want)
			}
		}
	})
}

func TestManyPodsAreBoundInOrderOfPriority(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		for i := range 5 {
			api.Create(class(fmt.Sprint("c", i), int32(i), corev1.PreemptNever))
		}
		for i := range 40 {
			api.Create(apitest.Pod("default", fmt.Sprint("p", i), wants("cpu", "1"), of(fmt.Sprint("c", i%5))))
		}
		synctest.Wait()
		addNodes(api, "n") // the node has room for four pods
		apitest.Settle(20 * time.Second)
		bound := 0
		for i := range 40 {
			if nodeOf(api, fmt.Sprint("p", i)) == "" {
				continue
			}
			if bound++; i%5 != 4 {
				t.Errorf("a pod of priority %d was bound", i%5)
			}
		}
		if bound != 4 {
			t.Errorf("%d pods were bound, want 4", bound)
		}
	})
}

func TestDaemonPodsPreemptOnTheirNode(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "a", "b")
		api.Create(class("high", 1000, corev1.PreemptLowerPriority),
			apitest.Pod("default", "x", wants("cpu", "4")), apitest.Pod("default", "y", wants("cpu", "4")))
		synctest.Wait()
		running(api, "x", "y")
		on := nodeOf(api, "y")
		api.Create(apitest.Pod("default", "daemon", wants("cpu", "1"), of("high"), func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
					{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{on}}}}}}}}
		}))
		synctest.Wait()
		if deleting(api, "x") || !deleting(api, "y") {
			t.Errorf("deleted x: %t, y: %t; want only y, which is on the daemon's node", deleting(api, "x"), deleting(api, "y"))
		}
		want := "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]."
		if why := whyNot(api, "daemon"); why != want {
			t.Errorf("message %q", why)
		}
		ended(api, "y")
		synctest.Wait()
		if nodeOf(api, "daemon") != on {
			t.Error("the pod daemon was not bound to its node")
		}
	})
}
