package tainteviction

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within runs a test in virtual time against a running controller and a node with a pod.
func within(t *testing.T, tolerations []corev1.Toleration, test func(t *testing.T, c cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := cluster{apitest.New(t)}
		c.Events.Watch()
		c.Run(New(c.Deps(), &c.Events))
		pod := apitest.Pod("default", "p")
		pod.Spec.NodeName, pod.Spec.Tolerations = "n", tolerations
		c.Create(apitest.Node("n"), pod)
		synctest.Wait()
		test(t, c)
	})
}

type cluster struct{ *apitest.API }

func (c cluster) taint(taints ...corev1.Taint) {
	apitest.Change(c.API, apitest.Node("n"), "", func(n *corev1.Node) { n.Spec.Taints = taints })
	synctest.Wait()
}

// evicted reports whether the pod is terminating or deleted.
func (c cluster) evicted() bool {
	synctest.Wait()
	p, ok := apitest.Get[*corev1.Pod](c.API, "default", "p")
	return !ok || p.DeletionTimestamp != nil
}

func noExecuteTaint(key string) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
}

func toleration(key string, seconds ...int64) corev1.Toleration {
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if len(seconds) > 0 {
		t.TolerationSeconds = &seconds[0]
	}
	return t
}

// TestEvictions tests after how many seconds a pod is evicted from a node with these taints; -1: never.
func TestEvictions(t *testing.T) {
	t.Parallel()
	a, b := noExecuteTaint("a"), noExecuteTaint("b")
	for name, tc := range map[string]struct {
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		after       int
	}{
		"not tolerated":         {[]corev1.Taint{a}, nil, 0},
		"NoSchedule":            {[]corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}, nil, -1},
		"tolerated":             {[]corev1.Taint{a}, []corev1.Toleration{toleration("a")}, -1},
		"every taint tolerated": {[]corev1.Taint{a, b}, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, -1},
		"tolerated for 30 s":    {[]corev1.Taint{a}, []corev1.Toleration{toleration("a", 30)}, 30},
		"tolerated for 0 s":     {[]corev1.Taint{a}, []corev1.Toleration{toleration("a", 0)}, 0},
		"tolerated for -5 s":    {[]corev1.Taint{a}, []corev1.Toleration{toleration("a", -5)}, 0},
		"the shortest time counts": {[]corev1.Taint{a, b}, []corev1.Toleration{toleration("a", 30), toleration("b", 10)},
			10},
		"one for 10 s, one always": {[]corev1.Taint{a, b}, []corev1.Toleration{toleration("a"), toleration("b", 10)}, 10},
		"one is not tolerated":     {[]corev1.Taint{a, b}, []corev1.Toleration{toleration("a")}, 0},
		"the first match counts":   {[]corev1.Taint{a}, []corev1.Toleration{toleration("a", 30), toleration("a", 10)}, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			within(t, tc.tolerations, func(t *testing.T, c cluster) {
				c.taint(tc.taints...)
				if tc.after < 0 {
					time.Sleep(24 * time.Hour)
					if c.evicted() || len(c.Events.Count()) > 0 {
						t.Error("evicted, want never")
					}
					return
				}
				if tc.after > 0 {
					time.Sleep(time.Duration(tc.after)*time.Second - time.Millisecond)
					if c.evicted() {
						t.Fatal("evicted too early")
					}
					time.Sleep(time.Millisecond)
				}
				if !c.evicted() {
					t.Fatal("not evicted")
				}
				p := apitest.Existing[*corev1.Pod](c.API, "default", "p")
				if d := podstate.Condition(p, corev1.DisruptionTarget); d == nil || d.Status != corev1.ConditionTrue ||
					d.Reason != "DeletionByTaintManager" || d.Message != "Taint manager: deleting due to NoExecute taint" {
					t.Errorf("condition %+v", d)
				}
				if got := c.Events.Count(); got["TaintManagerEviction"] != 1 {
					t.Errorf("events %v", got)
				}
			})
		})
	}
}

// TestTimeBegins tests that the removal of a taint cancels the eviction, that another taint does not extend the time,
// and that a new taint starts the time again.
func TestTimeBegins(t *testing.T) {
	t.Parallel()
	within(t, []corev1.Toleration{toleration("a", 30), toleration("b", 20)}, func(t *testing.T, c cluster) {
		c.taint(noExecuteTaint("a"))
		time.Sleep(25 * time.Second)
		c.taint()
		if got := c.Events.Count(); got["TaintManagerEviction"] != 1 {
			t.Errorf("events %v, want one about the cancelled eviction", got)
		}
		time.Sleep(time.Hour)
		c.taint(noExecuteTaint("a"))
		time.Sleep(15 * time.Second)
		if c.evicted() {
			t.Error("evicted, although the taint was removed and added again")
		}
		c.taint(noExecuteTaint("a"), noExecuteTaint("b"))
		time.Sleep(5*time.Second - time.Millisecond)
		if c.evicted() {
			t.Error("evicted too early")
		}
		time.Sleep(time.Millisecond)
		if !c.evicted() {
			t.Error("not evicted 20 s after the first taint")
		}
	})
}

// TestPodComesLater tests that a pod that is bound to a tainted node is evicted.
func TestPodComesLater(t *testing.T) {
	t.Parallel()
	within(t, []corev1.Toleration{toleration("a")}, func(t *testing.T, c cluster) {
		c.taint(noExecuteTaint("a"))
		late := apitest.Pod("default", "late")
		c.Create(late)
		apitest.Settle(time.Second)
		if p := apitest.Existing[*corev1.Pod](c.API, "default", "late"); p.DeletionTimestamp != nil {
			t.Error("a pod without a node was evicted")
		}
		apitest.Change(c.API, late, "binding", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
		apitest.Settle(time.Second)
		if p, ok := apitest.Get[*corev1.Pod](c.API, "default", "late"); ok && p.DeletionTimestamp == nil {
			t.Error("not evicted")
		}
		if c.evicted() {
			t.Error("the pod that tolerates the taint was evicted")
		}
	})
}

// TestFinishedPods tests that finished pods are evicted too, as in upstream.
func TestFinishedPods(t *testing.T) {
	t.Parallel()
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		within(t, nil, func(t *testing.T, c cluster) {
			c.Phase(apitest.Pod("default", "p"), phase, false)
			c.taint(noExecuteTaint("a"))
			if !c.evicted() || c.Events.Count()["TaintManagerEviction"] != 1 {
				t.Errorf("a %s pod was not evicted", phase)
			}
		})
	}
}

// TestIdle tests that status changes of pods and heartbeats of tainted nodes wake no keys.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster{apitest.New(t)}
		r := &run{Controller: New(c.Deps(), &c.Events), tainted: map[string]bool{"n": true}, since: nil}
		pod := apitest.Pod("default", "p")
		pod.Spec.NodeName = "n"
		ready := pod.DeepCopy()
		ready.Status.Phase = corev1.PodRunning
		if keys := r.onPod(pod, ready); len(keys) > 0 {
			t.Errorf("a change of status wakes %v", keys)
		}
		node := apitest.Node("n")
		node.Spec.Taints = []corev1.Taint{noExecuteTaint("a")}
		beat := node.DeepCopy()
		beat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
		if keys, err := r.onNode(t.Context(), node, beat); len(keys) > 0 || err != nil {
			t.Errorf("a heartbeat wakes %v, %v", keys, err)
		}
	})
}
