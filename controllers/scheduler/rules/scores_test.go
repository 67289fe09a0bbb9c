package rules

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/controllers/scheduler/cluster"
)

// scores returns the scores that a rule gives each node: "a:100 b:0"; empty if the rule skips scoring.
func scores(all *cluster.Cluster, rule string, pod *corev1.Pod, order ...string) string {
	c := NewCycle(all, cluster.NewPod(pod))
	nodes := make([]*cluster.Node, len(order))
	for i, name := range order {
		nodes[i] = all.Node(name)
	}
	for _, r := range All() {
		if r.Name != rule || r.Prepare != nil && !r.Prepare(c, nodes) {
			continue
		}
		values := make([]int64, len(nodes))
		for i, n := range nodes {
			values[i] = r.Score(c, n)
		}
		if r.Normalize != nil {
			r.Normalize(c, nodes, values)
		}
		out := ""
		for i, n := range nodes {
			out += fmt.Sprintf("%s:%d ", n.Name, values[i])
		}
		return out[:len(out)-1]
	}
	return ""
}

func prefer(weight int32, key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
		}
		a := p.Spec.Affinity.NodeAffinity
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{
				Weight: weight, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}})
	}
}

func preferPods(weight int32, app string, away bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		terms := []corev1.WeightedPodAffinityTerm{{Weight: weight, PodAffinityTerm: term(app)}}
		if away {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}
		} else {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}
		}
	}
}

func ownedBy(uid string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", UID: types.UID(uid), Controller: new(true)}}
	}
}

// service returns a Service that selects the pods of an app.
func service(namespace, app string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": app}}}
}

// change modifies a copy of a node, and replaces the node by it.
func change(all *cluster.Cluster, name string, f func(*corev1.Node)) {
	n := all.Node(name).DeepCopy()
	f(n)
	all.SetNode(n)
}

func TestScores(t *testing.T) {
	t.Parallel()
	place := func(node string, pods ...*corev1.Pod) func(*cluster.Cluster) {
		return func(all *cluster.Cluster) {
			for _, p := range pods {
				all.Add(cluster.NewPod(p), node)
			}
		}
	}
	images := func(node, name string, size int64) func(*cluster.Cluster) {
		return func(all *cluster.Cluster) {
			change(all, node, func(n *corev1.Node) {
				n.Status.Images = []corev1.ContainerImage{{Names: []string{name}, SizeBytes: size}}
			})
		}
	}
	taint := func(node string, keys ...string) func(*cluster.Cluster) {
		return func(all *cluster.Cluster) {
			for _, key := range keys {
				change(all, node, tainted(key, "", corev1.TaintEffectPreferNoSchedule))
			}
		}
	}
	hosts := []string{"a kubernetes.io/hostname=a: x x", "b kubernetes.io/hostname=b"}
	serves := func(namespace, app string) func(*cluster.Cluster) {
		return func(all *cluster.Cluster) { all.SetService(nil, service(namespace, app)) }
	}
	zones := []string{"a zone=1: x", "b zone=2: y", "c zone=3"}
	for name, c := range map[string]struct {
		rule   string
		nodes  []string
		change []func(*cluster.Cluster)
		pod    *corev1.Pod
		want   string
	}{
		// nodes have 10 CPUs and 10 Gi
		"least allocated": {"NodeResourcesFit", []string{"a", "b"},
			[]func(*cluster.Cluster){place("a", testPod(named("t"), wants("cpu", "5", "memory", "0")))},
			testPod(wants("cpu", "1", "memory", "1Gi")), "a:65 b:90"},
		"a pod without requests counts": {"NodeResourcesFit", []string{"a"}, nil, testPod(), "a:98"},
		"balanced": {"NodeResourcesBalancedAllocation", []string{"a", "b"},
			[]func(*cluster.Cluster){place("b", testPod(named("t"), wants("cpu", "4")))},
			testPod(wants("cpu", "2", "memory", "2Gi")), "a:100 b:80"},
		"balanced, overcommitted": {"NodeResourcesBalancedAllocation", []string{"a"},
			[]func(*cluster.Cluster){place("a", testPod(named("t"), wants("cpu", "40")))}, testPod(wants("cpu", "1")), "a:50"},
		"balanced, by memory alone": {"NodeResourcesBalancedAllocation", []string{"a"}, nil,
			testPod(wants("memory", "5Gi")), "a:75"},
		"balanced, with no request": {"NodeResourcesBalancedAllocation", []string{"a", "b"},
			[]func(*cluster.Cluster){place("b", testPod(named("t"), wants("cpu", "4")))}, testPod(), ""},
		"no image": {"ImageLocality", []string{"a", "b"}, nil, testPod(), ""},
		"a large image on half the nodes": {"ImageLocality", []string{"a", "b"},
			[]func(*cluster.Cluster){images("a", "i:latest", 1000<<20)}, testPod(), "a:48 b:0"},
		"a small image": {"ImageLocality", []string{"a", "b"},
			[]func(*cluster.Cluster){images("a", "i:latest", 20<<20)}, testPod(), "a:0 b:0"},
		"a huge image": {"ImageLocality", []string{"a"},
			[]func(*cluster.Cluster){images("a", "i:latest", 9000<<20)}, testPod(), "a:100"},
		"taints": {"TaintToleration", []string{"a", "b", "c"},
			[]func(*cluster.Cluster){taint("b", "k"), taint("c", "k", "l")}, testPod(), "a:100 b:50 c:0"},
		"taints, tolerated": {"TaintToleration", []string{"a", "b"}, []func(*cluster.Cluster){taint("b", "k")},
			testPod(tolerating(corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists})), "a:100 b:100"},
		"no taints": {"TaintToleration", []string{"a", "b"}, nil, testPod(), ""},
		"preferred nodes": {"NodeAffinity", []string{"a disk=ssd zone=1", "b disk=ssd", "c"}, nil,
			testPod(prefer(2, "disk", "ssd"), prefer(6, "zone", "1")), "a:100 b:25 c:0"},
		"preferred pods": {"InterPodAffinity", zones, nil, testPod(preferPods(5, "x", false)), "a:100 b:0 c:0"},
		"pods to avoid":  {"InterPodAffinity", zones, nil, testPod(preferPods(5, "x", true)), "a:0 b:100 c:100"},
		"preferred by a running pod": {"InterPodAffinity", zones,
			[]func(*cluster.Cluster){place("b", testPod(named("t"), preferPods(5, "me", false)))}, testPod(app("me")),
			"a:0 b:100 c:0"},
		"required by a running pod": {"InterPodAffinity", zones,
			[]func(*cluster.Cluster){place("c", testPod(named("t"), near(term("me"))))}, testPod(app("me")), "a:0 b:0 c:100"},
		"no pods preferred": {"InterPodAffinity", zones, nil, testPod(), ""},
		"soft spread": {"PodTopologySpread", []string{"a zone=1: x x", "b zone=2: x", "c zone=3", "d"},
			nil, testPod(app("x"), spreading(corev1.TopologySpreadConstraint{WhenUnsatisfiable: corev1.ScheduleAnyway})),
			"a:0 b:33 c:100 d:0"},
		"pods of a controller": {"PodTopologySpread", []string{"a kubernetes.io/hostname=a", "b kubernetes.io/hostname=b"},
			[]func(*cluster.Cluster){place("a", testPod(named("s"), ownedBy("rs")), testPod(named("t"), ownedBy("rs")))},
			testPod(ownedBy("rs")), "a:40 b:100"},
		"pods of a Service": {"PodTopologySpread", hosts, []func(*cluster.Cluster){serves("default", "x")},
			testPod(app("x")), "a:40 b:100"},
		"pods of another Service": {"PodTopologySpread", hosts, []func(*cluster.Cluster){serves("default", "y")},
			testPod(app("x")), ""},
		"a Service in another namespace": {"PodTopologySpread", hosts, []func(*cluster.Cluster){serves("other", "x")},
			testPod(app("x")), ""},
		"a Service and a controller": {"PodTopologySpread", hosts, []func(*cluster.Cluster){serves("default", "x")},
			testPod(app("x"), ownedBy("rs")), ""},
		"a Service and a Job": {"PodTopologySpread", hosts, []func(*cluster.Cluster){serves("default", "x")},
			testPod(app("x"), ownedBy("job"), func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Job" }), "a:40 b:100"},
		"a deleted Service": {"PodTopologySpread", hosts, []func(*cluster.Cluster){serves("default", "x"),
			func(all *cluster.Cluster) { all.SetService(service("default", "x"), nil) }}, testPod(app("x")), ""},
		"own constraints and a Service": {"PodTopologySpread", hosts, []func(*cluster.Cluster){serves("default", "x")},
			testPod(app("x"), spreading(corev1.TopologySpreadConstraint{})), ""},
		"pods of another controller": {"PodTopologySpread", []string{"a kubernetes.io/hostname=a"},
			[]func(*cluster.Cluster){place("a", testPod(named("s"), ownedBy("rs")))}, testPod(ownedBy("another")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			all := sketch(c.nodes...)
			for _, f := range c.change {
				f(all)
			}
			order := []string{"a", "b", "c", "d"}[:len(c.nodes)]
			if got := scores(all, c.rule, c.pod, order...); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestChooseWeighsScores(t *testing.T) {
	t.Parallel()
	all := sketch("a", "b", "c")
	change(all, "c", tainted("k", "", corev1.TaintEffectPreferNoSchedule))
	all.Add(cluster.NewPod(testPod(named("t"), wants("cpu", "5"))), "a")
	chooser := Chooser{Rules: All()}
	if out := chooser.Choose(NewCycle(all, cluster.NewPod(testPod()))); out.Node.Name != "b" {
		t.Errorf("chose %s, want the emptier b without a taint", out.Node.Name)
	}
	named := testPod(func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 10, Preference: corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}}}}}
	})
	if out := chooser.Choose(NewCycle(all, cluster.NewPod(named))); out.Node.Name != "a" {
		t.Errorf("chose %s, want the preferred a", out.Node.Name)
	}
}

// onlyOn requires nodes by name, as a DaemonSet does for its pods.
func onlyOn(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: names}}}}}}}
	}
}

func TestOnlyNamedNodesAreFiltered(t *testing.T) {
	t.Parallel()
	all := sketch("a", "b", "c")
	chooser := Chooser{Rules: All()}
	out := chooser.Choose(NewCycle(all, cluster.NewPod(testPod(onlyOn("b"), wants("cpu", "40")))))
	want := "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
	if got := out.Message(); got != want || len(out.Refused) != 1 {
		t.Errorf("%q, %d filtered", got, len(out.Refused))
	}
	if out := chooser.Choose(NewCycle(all, cluster.NewPod(testPod(onlyOn("b"))))); out.Node == nil ||
		out.Node.Name != "b" {
		t.Errorf("want b: %q", out.Message())
	}
	if out := chooser.Choose(NewCycle(all,
		cluster.NewPod(testPod(onlyOn("gone"))))); out.Message() != "0/3 nodes are available: 3 node(s) didn't satisfy "+
		"plugin(s) [NodeAffinity]." {
		t.Errorf("%q", out.Message())
	}
}

func TestNominatedPodsReserveResources(t *testing.T) {
	t.Parallel()
	with := func(priority int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Priority = &priority }
	}
	all := sketch("a")
	all.Nominate(cluster.NewPod(testPod(named("n"), wants("cpu", "8"), with(10))), "a")
	for name, c := range map[string]struct {
		pod *corev1.Pod
		fit string
	}{
		"lower priority":                {testPod(wants("cpu", "4"), with(9)), ""},
		"same priority":                 {testPod(wants("cpu", "4"), with(10)), ""},
		"higher priority":               {testPod(wants("cpu", "4"), with(11)), "a"},
		"enough for both":               {testPod(wants("cpu", "2")), "a"},
		"the nominated pod itself":      {testPod(named("n"), wants("cpu", "8"), with(10)), "a"},
		"affinity to the nominated pod": {testPod(near(term("n")), app("q")), ""},
	} {
		if fit, _ := fitting(all, c.pod); fit != c.fit {
			t.Errorf("%s: fits on %q, want %q", name, fit, c.fit)
		}
		if all.Pods() != 0 {
			t.Fatalf("%s: %d pods remain in the cluster", name, all.Pods())
		}
	}
}

func TestEnoughNodesAreRanked(t *testing.T) {
	t.Parallel()
	for nodes, want := range map[int]int{1: 1, 100: 100, 200: 100, 1000: 420, 5000: 500, 10000: 500} {
		if got := enough(nodes); got != want {
			t.Errorf("%d of %d nodes, want %d", got, nodes, want)
		}
	}
}
