package podgc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func within(t *testing.T, threshold int, test func(t *testing.T, api *apitest.API, c *Controller)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		c, err := New(api.Deps(), Config{Threshold: threshold})
		if err != nil {
			t.Fatal(err)
		}
		api.Create(apitest.Node("n"))
		api.Ready("n", corev1.ConditionTrue)
		test(t, api, c)
	})
}

func onNode(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = name }
}

func names(api *apitest.API) []string {
	var out []string
	for _, p := range apitest.List[*corev1.Pod](api, "default") {
		out = append(out, p.Name)
	}
	return out
}

func TestKeepsTheYoungestFinishedPods(t *testing.T) {
	within(t, 3, func(t *testing.T, api *apitest.API, c *Controller) {
		for i := range 10 {
			pod := apitest.Pod("default", fmt.Sprint("p", i), onNode("n"))
			api.Create(pod)
			api.Phase(apitest.Pod("default", pod.Name), corev1.PodSucceeded, false)
			time.Sleep(2 * time.Second)
		}
		api.Create(apitest.Pod("default", "running", onNode("n")))
		api.Phase(apitest.Pod("default", "running"), corev1.PodRunning, true)
		apitest.Change(api, apitest.Pod("default", "p9"), "status", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
		})
		api.Run(c)
		apitest.Settle(time.Second)
		if got := names(api); !slices.Equal(got, []string{"p6", "p7", "p8", "running"}) {
			t.Errorf("left: %v; want the newest three, p9 deleted first because it was evicted", got)
		}
		if n := apitest.Value(c.deleted.WithLabelValues("default", "terminated")); n != 7 {
			t.Errorf("metric %v, want 7", n)
		}
	})
}

func TestOrphansAreDeletedAfterQuarantine(t *testing.T) {
	within(t, 0, func(t *testing.T, api *apitest.API, c *Controller) {
		api.Create(apitest.Pod("default", "lost", onNode("gone")), apitest.Pod("default", "saved", onNode("back")),
			apitest.Pod("default", "fine", onNode("n")))
		api.Run(c)
		apitest.Settle(30 * time.Second)
		if n := len(names(api)); n != 3 {
			t.Fatalf("%d pods left within the quarantine, want 3", n)
		}
		api.Create(apitest.Node("back"))
		apitest.Settle(31 * time.Second)
		if got := names(api); !slices.Equal(got, []string{"fine", "saved"}) {
			t.Errorf("left: %v", got)
		}
	})
}

func TestOrphanWithFinalizerHasCondition(t *testing.T) {
	within(t, 0, func(t *testing.T, api *apitest.API, c *Controller) {
		api.Create(apitest.Pod("default", "held", onNode("gone"),
			func(p *corev1.Pod) { p.Finalizers = []string{"example.com/hold"} }))
		api.Run(c)
		apitest.Settle(10 * time.Minute)
		p, _ := apitest.Get[*corev1.Pod](api, "default", "held")
		cond := podstate.Condition(p, corev1.DisruptionTarget)
		if p.Status.Phase != corev1.PodFailed || cond == nil || cond.Reason != "DeletionByPodGC" ||
			p.DeletionTimestamp == nil {
			t.Errorf("phase %s, condition %+v, deleted %v", p.Status.Phase, cond, p.DeletionTimestamp)
		}
		if n := apitest.Value(c.deleted.WithLabelValues("default", "orphaned")); n != 1 {
			t.Errorf("counted %v times, want once", n)
		}
	})
}

// TestCollects tests whether the controller deletes a pod, for which reason, and the phase that it sets. A finalizer
// keeps the object.
func TestCollects(t *testing.T) {
	out := corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}
	for name, tc := range map[string]struct {
		node     string // empty: none
		phase    corev1.PodPhase
		deleting bool
		ready    corev1.ConditionStatus
		taints   []corev1.Taint
		reason   string // of the deletion; empty: not deleted
		want     corev1.PodPhase
	}{
		"runs": {"n", corev1.PodRunning, false, corev1.ConditionTrue, nil, "",
			corev1.PodRunning},
		"finished, below the threshold": {"n", corev1.PodSucceeded, false, corev1.ConditionTrue, nil, "",
			corev1.PodSucceeded},
		"pending, without a node": {"", corev1.PodPending, false, corev1.ConditionTrue, nil, "", corev1.PodPending},
		"terminating, without a node": {"", corev1.PodPending, true, corev1.ConditionTrue, nil,
			reasonUnscheduled, corev1.PodFailed},
		"terminating": {"n", corev1.PodRunning, true, corev1.ConditionTrue, nil, "", corev1.PodRunning},
		"terminating on a node that is not ready": {"n", corev1.PodRunning, true, corev1.ConditionUnknown, nil, "",
			corev1.PodRunning},
		"terminating on a node out of service": {"n", corev1.PodRunning, true, corev1.ConditionUnknown,
			[]corev1.Taint{out}, reasonOutOfService, corev1.PodFailed},
		"terminating on a node out of service, Ready False": {"n", corev1.PodRunning, true, corev1.ConditionFalse,
			[]corev1.Taint{out}, reasonOutOfService, corev1.PodFailed},
		"out of service, but ready": {"n", corev1.PodRunning, true, corev1.ConditionTrue, []corev1.Taint{out},
			"", corev1.PodRunning},
		"out of service, but not terminating": {"n", corev1.PodRunning, false, corev1.ConditionUnknown,
			[]corev1.Taint{out}, "", corev1.PodRunning},
		"terminating on a node with another taint": {"n", corev1.PodRunning, true, corev1.ConditionUnknown,
			[]corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}, "", corev1.PodRunning},
		"orphaned": {"gone", corev1.PodRunning, false, corev1.ConditionTrue, nil, reasonOrphaned, corev1.PodFailed},
		"orphaned and pending": {"gone", corev1.PodPending, false, corev1.ConditionTrue, nil, reasonOrphaned,
			corev1.PodFailed},
		"orphaned and terminating": {"gone", corev1.PodRunning, true, corev1.ConditionTrue, nil, reasonOrphaned,
			corev1.PodFailed},
		"orphaned and finished keeps its phase": {"gone", corev1.PodSucceeded, false, corev1.ConditionTrue, nil,
			reasonOrphaned, corev1.PodSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, 1, func(t *testing.T, api *apitest.API, c *Controller) {
				p := apitest.Pod("default", "p", onNode(tc.node),
					func(p *corev1.Pod) { p.Finalizers = []string{"example.com/hold"} })
				api.Create(p)
				api.Phase(p, tc.phase, false)
				if tc.deleting {
					api.Delete(p, "")
				}
				api.Ready("n", tc.ready)
				apitest.Change(api, apitest.Node("n"), "", func(n *corev1.Node) { n.Spec.Taints = tc.taints })
				api.Run(c)
				apitest.Settle(quarantine + period + time.Second)
				p = apitest.Existing[*corev1.Pod](api, "default", "p")
				if p.Status.Phase != tc.want {
					t.Errorf("phase %s, want %s", p.Status.Phase, tc.want)
				}
				if deleted := p.DeletionTimestamp != nil && *p.DeletionGracePeriodSeconds == 0; deleted != (tc.reason != "") {
					t.Errorf("deleted without grace period: %v", deleted)
				}
				if got := podstate.Condition(p, corev1.DisruptionTarget) != nil; got != (tc.reason == reasonOrphaned &&
					tc.want == corev1.PodFailed) {
					t.Errorf("condition: %v", p.Status.Conditions)
				}
				want := ""
				if tc.reason != "" {
					want = "pods_total default " + tc.reason + "=1"
				}
				if got := api.Counters("pod_gc_collector_force_delete_", ""); got != want {
					t.Errorf("metrics %q, want %q", got, want)
				}
			})
		})
	}
}

func TestPick(t *testing.T) {
	t.Parallel()
	deleting := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	pods := []*corev1.Pod{
		apitest.Pod("default", "bound", onNode("n"), deleting),
		apitest.Pod("default", "unbound", deleting),
		apitest.Pod("default", "alive"),
	}
	if got := unscheduled(pods); len(got) != 1 || got[0].Name != "unbound" {
		t.Errorf("unscheduled: %v", got)
	}
	if got := excess(pods, 1); len(got) != 0 {
		t.Errorf("excess without finished pods: %v", got)
	}
}

// refusing is a client whose deletions fail.
type refusing struct{ client.Client }

func (refusing) Delete(context.Context, client.Ref, metav1.DeleteOptions) (client.Object, error) {
	return nil, errors.New("refused")
}

func TestFailureIsCountedAndLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		core, logs := observer.New(zapcore.WarnLevel)
		deps := api.Deps()
		deps.Client, deps.Log = refusing{api.Client}, zap.New(core)
		c, err := New(deps, Config{Threshold: 1})
		if err != nil {
			t.Fatal(err)
		}
		api.Create(apitest.Node("n"))
		for _, name := range []string{"a", "b"} {
			api.Create(apitest.Pod("default", name, onNode("n")))
			api.Phase(apitest.Pod("default", name), corev1.PodFailed, false)
		}
		api.Run(c)
		apitest.Settle(5*20*time.Second + time.Second)
		if n := apitest.Value(c.failed.WithLabelValues("default", "terminated")); n != 6 {
			t.Errorf("%v failures counted, want 6: one in each period", n)
		}
		if n := apitest.Value(c.deleted.WithLabelValues("default", "terminated")); n != 0 {
			t.Errorf("%v deletions counted", n)
		}
		if logs.Len() != 1 {
			t.Errorf("logged %d times, want once", logs.Len())
		}
	})
}
