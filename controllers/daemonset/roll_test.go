package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
	"monopod/controllers/revisions"
)

// TestPlan tests what one sync does with pods. Each word is a node, each letter one of its pods: o is available and has
// the old template, u is available and has the new one; O and U are the same but not ready; y has the new template and
// has not been ready for minReadySeconds; T is terminating, F has failed, S has succeeded; - is a node without pods.
// Deletions name the letters of the pods.
func TestPlan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		nodes              string
		unavailable, surge string
		want               string
	}{
		{"u u u", "1", "0", ""},
		{"- u -", "1", "0", "create n0 n2"},
		{"T u u", "1", "0", ""}, // the new pod waits until T has ended
		{"uu u", "1", "0", "delete n0:u"},
		{"uo u", "1", "0", "delete n0:o"},
		{"F u", "1", "0", "failed n0:F"},
		{"S u", "1", "0", "delete n0:S"},

		// In place.
		{"o o o", "1", "0", "delete n0:o"},
		{"o o o", "2", "0", "delete n0:o n1:o"},
		{"o o o o o", "10%", "0", "delete n0:o"}, // rounded up
		{"o o o o o", "50%", "0", "delete n0:o n1:o n2:o"},
		{"o o o", "100%", "0", "delete n0:o n1:o n2:o"},
		{"u o o", "1", "0", "delete n1:o"},
		{"U o o", "1", "0", ""},
		{"y o o", "1", "0", ""},
		{"U o o", "2", "0", "delete n1:o"},
		{"T o o", "1", "0", ""},
		{"T o o", "2", "0", "delete n1:o"},
		{"- o o", "2", "0", "create n0"}, // missing pods come before deletions
		{"O o o", "1", "0", "delete n0:O"},
		{"o O O", "1", "0", "delete n1:O n2:O"},
		{"o O o", "2", "0", "delete n1:O n0:o"},

		// With surge.
		{"o o o", "0", "1", "create n0"},
		{"o o o", "0", "2", "create n0 n1"},
		{"o o o o o", "0", "10%", "create n0"},
		{"o o o o o", "0", "50%", "create n0 n1 n2"},
		{"oU o o", "0", "1", ""},
		{"oy o o", "0", "1", ""},
		{"oU o o", "0", "2", "create n1"},
		{"ou o o", "0", "1", "delete n0:o"},
		{"OU o o", "0", "1", "delete n0:O"}, // an old pod that is not ready is deleted without waiting for U
		{"O o o", "0", "1", "create n0 n1"}, // a node without an available pod does not count
		{"uT o o", "0", "1", "create n1"},
		{"T o o", "0", "1", "create n0"}, // with surge the new pod does not wait until T has ended
		{"oT o", "0", "1", "create n0"},
		{"uu o", "0", "1", "delete n0:u"},
		{"oo o", "0", "1", "delete n0:o"},
		{"ooU o", "0", "1", "delete n0:o"},
		{"u u u", "0", "1", ""},
	} {
		t.Run(fmt.Sprintf("%s/%s/%s", c.nodes, c.unavailable, c.surge), func(t *testing.T) {
			ds, now := daemon(rolling(c.unavailable, c.surge)), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			ds.Spec.MinReadySeconds = 30
			current := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{appsv1.DefaultDaemonSetUniqueLabelKey: "new"}}}
			var nodes []*corev1.Node
			var pods []*corev1.Pod
			for i, word := range strings.Fields(c.nodes) {
				nodes = append(nodes, apitest.Node(fmt.Sprint("n", i)))
				for at, letter := range strings.Trim(word, "-") {
					pods = append(pods, lettered(letter, nodes[i].Name, now.Add(time.Duration(at)*time.Minute-time.Hour), now))
				}
			}
			st := newSyncState(ds, revisions.History{Current: current}, nodes, pods, now)
			if got := text(st.plan()); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func text(p plan) string {
	var out []string
	add := func(what string, items []string) {
		if len(items) > 0 {
			out = append(out, what+" "+strings.Join(items, " "))
		}
	}
	names := func(pods []*corev1.Pod) (out []string) {
		for _, p := range pods {
			out = append(out, p.Name)
		}
		return out
	}
	slices.Sort(p.create)
	add("create", p.create)
	add("delete", names(p.delete))
	add("failed", names(p.failed))
	return strings.Join(out, ", ")
}

// lettered returns the pod for a letter of TestPlan.
func lettered(letter rune, node string, created, now time.Time) *corev1.Pod {
	p := apitest.Pod("default", fmt.Sprintf("%s:%c", node, letter))
	p.Spec.NodeName, p.CreationTimestamp = node, metav1.NewTime(created)
	p.Labels = map[string]string{appsv1.DefaultDaemonSetUniqueLabelKey: "old"}
	if strings.ContainsRune("uUy", letter) {
		p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] = "new"
	}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}
	p.Status.Phase = corev1.PodRunning
	switch letter {
	case 'T':
		p.DeletionTimestamp = new(metav1.NewTime(now))
	case 'F':
		p.Status.Phase = corev1.PodFailed
	case 'S':
		p.Status.Phase = corev1.PodSucceeded
	case 'y':
		ready.LastTransitionTime = metav1.NewTime(now.Add(-10 * time.Second))
	case 'O', 'U':
		ready.Status = corev1.ConditionFalse
	}
	p.Status.Conditions = []corev1.PodCondition{ready}
	return p
}

// If a node is tainted during an update, its pod is kept (NoSchedule) or deleted (NoExecute), and the update continues.
func TestTaintedDuringUpdate(t *testing.T) {
	for name, c := range map[string]struct {
		effect corev1.TaintEffect
		begun  string
		atLast string
	}{
		"NoSchedule": {corev1.TaintEffectNoSchedule, "n1:v1 n1:v2 n2:v1",
			"n1:v2 n2:v2"}, // as in upstream, an update also replaces pods that tolerate only NoExecute
		"NoExecute": {corev1.TaintEffectNoExecute, "n1:v1 n1:v2 n2:v1-", "n1:v2"},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, 2, func(t *testing.T, cl cluster) {
				cl.Create(daemon(rolling("0", "1")))
				apitest.Settle(time.Second)
				cl.bind("v1")
				cl.image("v2")
				cl.node("n2", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: c.effect}} })
				cl.want("begun", c.begun)
				for range 4 {
					cl.bind("v2")
					cl.end()
				}
				cl.want("at last", c.atLast)
			})
		})
	}
}

// A change of a node's labels takes effect at once. A node that matches during an update gets the new template.
func TestNodesChange(t *testing.T) {
	within(t, 2, func(t *testing.T, c cluster) {
		c.Create(daemon(
			func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "fast"} }))
		apitest.Settle(time.Second)
		c.want("none", "")
		c.wantStatus("none", appsv1.DaemonSetStatus{})
		label := func(value string) func(*corev1.Node) {
			return func(n *corev1.Node) { n.Labels = map[string]string{"disk": value} }
		}
		c.node("n1", label("fast"))
		c.node("n2", label("fast"))
		c.bind("v1")
		c.want("both", "n1:v1 n2:v1")
		c.node("n1", label("slow"))
		c.want("one node", "n1:v1- n2:v1")
		c.wantStatus("one node",
			appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1,
				NumberReady: 1, NumberAvailable: 1, NumberMisscheduled: 1})
		c.end()
		c.image("v2")
		c.node("n1", label("fast"))
		c.want("during the update", "n1:v2 n2:v1-")
	})
}

// The status counts updated pods also with OnDelete. minReadySeconds delays availability; a higher value makes
// available pods unavailable.
func TestStatusFollows(t *testing.T) {
	within(t, 1, func(t *testing.T, c cluster) {
		c.Create(daemon(onDelete))
		apitest.Settle(time.Second)
		c.bind("v1")
		c.wantStatus("ready",
			appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1,
				NumberReady: 1, NumberAvailable: 1})
		c.change(func(ds *appsv1.DaemonSet) { ds.Spec.MinReadySeconds = 60 })
		c.wantStatus("not long enough",
			appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1,
				NumberReady: 1, NumberUnavailable: 1})
		apitest.Settle(time.Minute)
		c.wantStatus("long enough",
			appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1,
				NumberReady: 1, NumberAvailable: 1})
		c.image("v2")
		c.wantStatus("old",
			appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, NumberReady: 1, NumberAvailable: 1})
	})
}

// An undo makes an old revision the newest one again; pods of this revision are not replaced.
func TestUndo(t *testing.T) {
	within(t, 2, func(t *testing.T, c cluster) {
		c.Create(daemon())
		apitest.Settle(time.Second)
		c.bind("v1")
		kept := c.pods()[slices.IndexFunc(c.pods(), func(p *corev1.Pod) bool { return nodeOf(p) == "n2" })]
		c.image("v2")
		c.end()
		c.want("one is replaced", "n1:v2 n2:v1")
		c.image("v1")
		c.want("undone", "n1:v1 n2:v1")
		c.bind("v1")
		c.want("done", "n1:v1 n2:v1")
		if got := c.pods(); got[0].UID != kept.UID && got[1].UID != kept.UID {
			t.Error("a pod of the restored revision was replaced")
		}
		got := map[int64]bool{}
		for _, r := range apitest.List[*appsv1.ControllerRevision](c.API, "default") {
			got[r.Revision] = true
		}
		if len(got) != 2 || !got[2] || !got[3] {
			t.Errorf("revisions %v", got)
		}
	})
}

// If the name of a revision is in use, status.collisionCount increases.
func TestCollisions(t *testing.T) {
	within(t, 1, func(t *testing.T, c cluster) {
		c.Create(daemon())
		apitest.Settle(time.Second)
		first := apitest.List[*appsv1.ControllerRevision](c.API, "default")[0]
		c.API.Delete(daemon(), "")
		apitest.Settle(time.Second)
		apitest.Change(c.API, first, "", func(r *appsv1.ControllerRevision) {
			r.OwnerReferences, r.Labels = nil, map[string]string{"app": "other"}
		})
		c.Create(daemon())
		apitest.Settle(time.Second)
		if n := c.ds().Status.CollisionCount; n == nil || *n != 1 {
			t.Errorf("status %+v", c.ds().Status)
		}
	})
}

// Matching pods are adopted, one on each node. Pods that lose the label are released and replaced.
func TestAdoption(t *testing.T) {
	within(t, 2, func(t *testing.T, c cluster) {
		for _, node := range []string{"n1", "n2"} {
			c.Create(apitest.Pod("default", "orphan-"+node, func(p *corev1.Pod) {
				p.Labels, p.Spec.NodeName, p.Spec.Containers[0].Image = map[string]string{"app": "d"}, node, "old"
			}))
		}
		c.Create(daemon(onDelete))
		apitest.Settle(time.Second)
		c.want("adopted", "n1:old n2:old")
		for _, p := range c.pods() {
			if !metav1.IsControlledBy(p, c.ds()) {
				t.Errorf("%s: %+v", p.Name, p.OwnerReferences)
			}
		}
		apitest.Change(c.API, c.pods()[0], "", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} })
		apitest.Settle(time.Second)
		c.want("released", "n1:old n1:v1 n2:old")
	})
}
