package daemonset

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func daemon(change ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	labels := map[string]string{"app": "d"}
	ds := &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
		}},
	}
	for _, f := range change {
		f(ds)
	}
	return ds
}

func rolling(unavailable, surge string) func(*appsv1.DaemonSet) {
	return func(ds *appsv1.DaemonSet) {
		u, s := intstr.Parse(unavailable), intstr.Parse(surge)
		ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &u, MaxSurge: &s}}
	}
}

func onDelete(ds *appsv1.DaemonSet) {
	ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
}

// cluster is an API with the controller and nodes. Pods are bound only by bind.
type cluster struct {
	*apitest.API
	t *testing.T
}

// within runs a test in virtual time against a running controller and n nodes, n1 first.
func within(t *testing.T, n int, test func(t *testing.T, c cluster)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		for i := range n {
			node := apitest.Node(fmt.Sprintf("n%d", i+1))
			node.Labels = map[string]string{"name": node.Name}
			api.Create(node)
		}
		deps, listed := api.Listed(api.Deps())
		api.Run(New(deps, &api.Events, Config{}))
		test(t, cluster{api, t})
		listed()
	})
}

func (c cluster) ds() *appsv1.DaemonSet {
	c.t.Helper()
	return apitest.Existing[*appsv1.DaemonSet](c.API, "default", "d")
}

func (c cluster) change(f func(*appsv1.DaemonSet)) {
	c.t.Helper()
	apitest.Change(c.API, daemon(), "", f)
	apitest.Settle(time.Second)
}

func (c cluster) image(name string) {
	c.t.Helper()
	c.change(func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = name })
}

func (c cluster) node(name string, f func(*corev1.Node)) {
	c.t.Helper()
	apitest.Change(c.API, apitest.Node(name), "", f)
	apitest.Settle(time.Second)
}

func (c cluster) pods() []*corev1.Pod { return apitest.List[*corev1.Pod](c.API, "default") }

// bind acts as the scheduler and the nodes: it binds new pods to their nodes, and makes the pods with certain images
// ready.
func (c cluster) bind(ready string) {
	c.t.Helper()
	for _, p := range c.pods() {
		if p.Spec.NodeName == "" {
			apitest.Change(c.API, p, "binding", func(p *corev1.Pod) { p.Spec.NodeName = nodeOf(p) })
		}
		if p.Spec.Containers[0].Image == ready && p.Status.Phase != corev1.PodRunning {
			c.Phase(p, corev1.PodRunning, true)
		}
	}
	apitest.Settle(time.Second)
}

// end finishes the deletion of the pods that are terminating.
func (c cluster) end() {
	c.t.Helper()
	c.EndPods("default")
}

// want compares the pods, sorted, as NODE:IMAGE; - marks a terminating pod: "n1:v1 n2:v1 n2:v2-".
func (c cluster) want(what, want string) {
	c.t.Helper()
	var got []string
	for _, p := range c.pods() {
		text := nodeOf(p) + ":" + p.Spec.Containers[0].Image
		if p.DeletionTimestamp != nil {
			text += "-"
		}
		got = append(got, text)
	}
	slices.Sort(got)
	if text := strings.Join(got, " "); text != want {
		c.t.Fatalf("%s: pods %q, want %q", what, text, want)
	}
}

func (c cluster) wantStatus(what string, want appsv1.DaemonSetStatus) {
	c.t.Helper()
	got := c.ds().Status
	want.ObservedGeneration = got.ObservedGeneration
	if fmt.Sprint(got) != fmt.Sprint(want) || got.ObservedGeneration != c.ds().Generation {
		c.t.Errorf("%s: status %+v, want %+v", what, got, want)
	}
}

func TestOnePodPerNode(t *testing.T) {
	within(t, 2, func(t *testing.T, c cluster) {
		c.Create(daemon())
		apitest.Settle(time.Second)
		c.want("created", "n1:v1 n2:v1")
		c.wantStatus("created",
			appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 2,
				NumberUnavailable: 2})
		p, rev := c.pods()[0], apitest.List[*appsv1.ControllerRevision](c.API, "default")
		if len(rev) != 1 || p.Labels["controller-revision-hash"] == "" ||
			p.Labels["controller-revision-hash"] != rev[0].Labels["controller-revision-hash"] ||
			p.Labels["pod-template-generation"] != "1" || p.GenerateName != "d-" || !metav1.IsControlledBy(p, c.ds()) ||
			len(p.Spec.Tolerations) < 6 {
			t.Errorf("pod %+v of revisions %v", p, rev)
		}
		c.bind("v1")
		c.wantStatus("ready",
			appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 2,
				NumberReady: 2, NumberAvailable: 2})

		c.Create(apitest.Node("n3"))
		apitest.Settle(time.Second)
		c.want("a third node", "n1:v1 n2:v1 n3:v1")
		c.Delete(apitest.Node("n3"), "")
		apitest.Settle(time.Second)
		c.want("node deleted before its pod was bound", "n1:v1 n2:v1")

		c.node("n2", func(
			n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		})
		c.want("tainted with NoSchedule", "n1:v1 n2:v1")
		c.wantStatus("tainted",
			appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1,
				NumberReady: 1, NumberAvailable: 1, NumberMisscheduled: 1})
		c.node("n2", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}} })
		c.want("tainted with NoExecute", "n1:v1 n2:v1-")
		c.end()
		c.want("ended", "n1:v1")
		c.node("n2", func(n *corev1.Node) { n.Spec.Taints = nil })
		c.want("without taint", "n1:v1 n2:v1")
		c.change(func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeSelector = map[string]string{"name": "n1"} })
		c.want("selects one node", "n1:v1-")
	})
}

func TestSurplusAndFinishedPods(t *testing.T) {
	within(t, 1, func(t *testing.T, c cluster) {
		c.Create(daemon())
		apitest.Settle(time.Second)
		c.bind("v1")
		other := apitest.Pod("default", "other", func(p *corev1.Pod) {
			p.Labels, p.Spec.NodeName = map[string]string{"app": "d"}, "n1"
			p.Spec.Containers[0].Image = "other"
		})
		c.Create(other)
		apitest.Settle(time.Second)
		c.want("an adopted pod is one too many", "n1:other- n1:v1")
		c.end()
		first := c.pods()[0]
		c.Phase(first, corev1.PodSucceeded, false)
		apitest.Settle(time.Second)
		if c.want("succeeded", "n1:v1"); c.pods()[0].UID == first.UID {
			t.Error("the succeeded pod was not replaced")
		}
		c.Delete(c.pods()[0], "")
		apitest.Settle(time.Second)
		c.want("deleted by a client", "n1:v1")
		if n := c.Events.Count(); n["SucceededDaemonPod"] != 1 || n["SuccessfulDelete"] != 2 || n["SuccessfulCreate"] != 3 {
			t.Errorf("events %v", n)
		}
	})
}

// A pod that its node rejects is replaced at once, then after 1 s, 2 s, 4 s…
func TestFailedPodsAreReplacedWithBackoff(t *testing.T) {
	within(t, 1, func(t *testing.T, c cluster) {
		c.Create(daemon())
		apitest.Settle(100 * time.Millisecond)
		fails := 0
		for range 600 * 4 {
			for _, p := range c.pods() {
				if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed {
					fails++
					c.Phase(p, corev1.PodFailed, false)
				}
			}
			apitest.Settle(250 * time.Millisecond)
		}
		if fails < 9 || fails > 12 {
			t.Errorf("%d pods failed in 10 min", fails)
		}
		if n := c.Events.Count()["FailedDaemonPod"]; n != fails-1 && n != fails {
			t.Errorf("%d events about %d pods", n, fails)
		}
	})
}

func TestRollingUpdateInPlace(t *testing.T) {
	within(t, 3, func(t *testing.T, c cluster) {
		c.Create(daemon(func(ds *appsv1.DaemonSet) { ds.Spec.MinReadySeconds = 5 }))
		apitest.Settle(time.Second)
		c.bind("v1")
		apitest.Settle(5 * time.Second)
		c.image("v2")
		c.want("one at a time", "n1:v1- n2:v1 n3:v1")
		c.end()
		c.want("replaced", "n1:v2 n2:v1 n3:v1")
		c.bind("v2")
		c.want("ready, not yet available", "n1:v2 n2:v1 n3:v1")
		apitest.Settle(5 * time.Second)
		c.want("available", "n1:v2 n2:v1- n3:v1")
		c.end()
		for _, p := range c.pods() {
			if nodeOf(p) == "n3" {
				c.Phase(p, corev1.PodRunning, false)
			}
		}
		apitest.Settle(time.Second)
		c.want("an old one that is not available goes, too", "n1:v2 n2:v2 n3:v1-")
		c.end()
		c.bind("v2")
		apitest.Settle(5 * time.Second)
		c.wantStatus("updated",
			appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, CurrentNumberScheduled: 3, UpdatedNumberScheduled: 3,
				NumberReady: 3, NumberAvailable: 3})
		revs := map[int64]bool{}
		for _, r := range apitest.List[*appsv1.ControllerRevision](c.API, "default") {
			revs[r.Revision] = true
		}
		if !maps.Equal(revs, map[int64]bool{1: true, 2: true}) {
			t.Errorf("revisions %v", revs)
		}
	})
}

func TestRollingUpdateWithSurge(t *testing.T) {
	within(t, 2, func(t *testing.T, c cluster) {
		c.Create(daemon(rolling("0", "1")))
		apitest.Settle(time.Second)
		c.bind("v1")
		c.image("v2")
		c.want("one node surges", "n1:v1 n1:v2 n2:v1")
		c.bind("")
		c.want("until the new pod is available", "n1:v1 n1:v2 n2:v1")
		c.bind("v2")
		c.want("the next", "n1:v1- n1:v2 n2:v1 n2:v2")
		c.end()
		c.bind("v2")
		c.end()
		c.want("done", "n1:v2 n2:v2")
		c.Delete(c.pods()[0], "")
		apitest.Settle(time.Second)
		if n := len(c.pods()); n != 3 {
			t.Errorf("%d pods, want 3: with surge the successor does not wait for the terminating pod", n)
		}
		c.end()
		c.bind("v2")
		c.image("v3")
		c.bind("")
		for _, p := range c.pods() {
			if p.Spec.Containers[0].Image == "v2" {
				c.Phase(p, corev1.PodRunning, false)
			}
		}
		apitest.Settle(time.Second)
		c.bind("")
		c.want("old pods that are not ready go at once", "n1:v2- n1:v3 n2:v2- n2:v3")
		c.end()
	})
}

func TestOnDeleteAndHistoryLimit(t *testing.T) {
	within(t, 1, func(t *testing.T, c cluster) {
		c.Create(daemon(onDelete, func(ds *appsv1.DaemonSet) { ds.Spec.RevisionHistoryLimit = new(int32(1)) }))
		apitest.Settle(time.Second)
		c.bind("v1")
		c.image("v2")
		c.image("v3")
		c.want("nothing happens", "n1:v1")
		c.wantStatus("old",
			appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, NumberReady: 1, NumberAvailable: 1})
		images := func() string {
			var all []string
			for _, r := range apitest.List[*appsv1.ControllerRevision](c.API, "default") {
				all = append(all, string(r.Data.Raw[strings.Index(string(r.Data.Raw), `"image":"`)+9:][:2]))
			}
			slices.Sort(all)
			return strings.Join(all, " ")
		}
		if got := images(); got != "v1 v3" {
			t.Errorf("revisions of %s, want those of the pod and of the template", got)
		}
		c.Delete(c.pods()[0], "")
		c.end()
		c.want("deleted", "n1:v3")
	})
}

func TestIdleWritesNothing(t *testing.T) {
	within(t, 2, func(t *testing.T, c cluster) {
		c.Create(daemon())
		apitest.Settle(time.Second)
		c.bind("v1")
		before := c.Store.Revision()
		apitest.Settle(24 * time.Hour)
		if after := c.Store.Revision(); after != before {
			t.Errorf("%d writes in an idle day", after-before)
		}
	})
}

func TestFits(t *testing.T) {
	t.Parallel()
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
	}
	affine := func(node string) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Affinity = pinTo(nil, node) }
	}
	for name, c := range map[string]struct {
		ds        func(*appsv1.DaemonSet)
		node      func(*corev1.Node)
		run, stay bool
	}{
		"any":               {nil, nil, true, true},
		"node name":         {func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeName = "n" }, nil, true, true},
		"another node name": {func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeName = "m" }, nil, false, false},
		"affinity":          {affine("n"), nil, true, true},
		"other affinity":    {affine("m"), nil, false, false},
		"selector": {func(
			ds *appsv1.DaemonSet) {
			ds.Spec.Template.Spec.NodeSelector = map[string]string{"a": "b"}
		}, nil, false, false},
		"NoSchedule":            {nil, taint("k", corev1.TaintEffectNoSchedule), false, true},
		"NoExecute":             {nil, taint("k", corev1.TaintEffectNoExecute), false, false},
		"PreferNoSchedule":      {nil, taint("k", corev1.TaintEffectPreferNoSchedule), true, true},
		"cordoned":              {nil, taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule), true, true},
		"disk pressure":         {nil, taint(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule), true, true},
		"memory pressure":       {nil, taint(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule), true, true},
		"process pressure":      {nil, taint(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule), true, true},
		"unreachable":           {nil, taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute), true, true},
		"not ready":             {nil, taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute), true, true},
		"not ready, NoSchedule": {nil, taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule), false, true},
		"no network":            {nil, taint(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule), false, true},
		"no network, not needed": {func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.HostNetwork = true },
			taint(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule), true, true},
		"tolerated by everything": {func(ds *appsv1.DaemonSet) {
			ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, taint("k", corev1.TaintEffectNoExecute), true, true},
	} {
		ds, node := daemon(), apitest.Node("n")
		if c.ds != nil {
			c.ds(ds)
		}
		if c.node != nil {
			c.node(node)
		}
		if run, stay := fits(ds, node); run != c.run || stay != c.stay {
			t.Errorf("%s: %v %v, want %v %v", name, run, stay, c.run, c.stay)
		}
	}
}
