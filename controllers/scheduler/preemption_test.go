package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/controllers/scheduler/cluster"
	"monopod/controllers/scheduler/rules"
)

// pod parses name, priority, CPUs and optionally app and minutes since its start: "p 10 4 app 5".
func pod(text string, change ...func(*corev1.Pod)) *corev1.Pod {
	var name, app string
	var priority int32
	var cpu, minutes int
	_, _ = fmt.Sscan(text, &name, &priority, &cpu, &app, &minutes)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name),
			Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Priority: &priority,
			Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": *resource.NewQuantity(int64(cpu), resource.DecimalSI)}}}}},
		Status: corev1.PodStatus{StartTime: &metav1.Time{Time: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(
			-time.Duration(minutes) * time.Minute)}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// nodes builds a cluster of nodes with 10 CPUs each. "a: x 1 4 | y 2 6" is the node a with two pods.
func nodes(lines ...string) *cluster.Cluster {
	all := cluster.New()
	for _, line := range lines {
		name, pods, _ := strings.Cut(line, ":")
		all.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"host": name}},
			Status: corev1.NodeStatus{
				Allocatable: corev1.ResourceList{"cpu": resource.MustParse("10"), "pods": resource.MustParse("100")},
				Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
		for text := range strings.SplitSeq(pods, "|") {
			if strings.TrimSpace(text) != "" {
				all.Add(cluster.NewPod(pod(text)), name)
			}
		}
	}
	return all
}

func budget(app string, allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
		Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed}}
}

// find returns "node: victims", or the reason why there are none.
func find(all *cluster.Cluster, p *corev1.Pod, budgets ...*policyv1.PodDisruptionBudget) string {
	chooser := &rules.Chooser{Rules: rules.All()}
	finder := Finder{Chooser: chooser}
	c := rules.NewCycle(all, cluster.NewPod(p))
	out := chooser.Choose(c)
	if out.Node != nil {
		return "fits on " + out.Node.Name
	}
	if why := Ineligible(c, &out); why != "" {
		return why
	}
	best, why := finder.Find(c, &out, budgets)
	if best == nil {
		return why
	}
	names := make([]string, len(best.Victims))
	for i, v := range best.Victims {
		names[i] = v.Name
	}
	return best.Name + ": " + strings.Join(names, " ")
}

func TestFind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nodes   []string
		pod     string
		budgets []*policyv1.PodDisruptionBudget
		want    string
	}{
		"one victim is enough":              {[]string{"a: x 1 5 | y 1 5"}, "p 9 5", nil, "a: y"},
		"the lowest priority":               {[]string{"a: x 3 5 | y 1 5"}, "p 9 5", nil, "a: y"},
		"the younger of two":                {[]string{"a: old 1 5 - 50 | new 1 5 - 5"}, "p 9 5", nil, "a: new"},
		"as many as needed":                 {[]string{"a: x 1 4 | y 2 4 | z 3 2"}, "p 9 8", nil, "a: y x"},
		"a large one instead of small ones": {[]string{"a: x 1 6 | y 1 2 - 3 | z 1 2 - 4"}, "p 9 6", nil, "a: x"},
		"none of the same priority": {[]string{"a: x 9 10"}, "p 9 5", nil,
			"0/1 nodes are available: 1 No preemption victims found for incoming pod."},
		"too few resources without them": {[]string{"a: x 1 5 | y 9 5"}, "p 9 8", nil,
			"0/1 nodes are available: 1 Insufficient cpu."},
		"more than the node has": {[]string{"a: x 1 5"}, "p 9 11", nil,
			"0/1 nodes are available: 1 Preemption is not helpful for scheduling."},
		"reasons by node": {[]string{"a: x 9 10", "b: y 1 5 | z 9 5"}, "p 9 8", nil,
			"0/2 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod."},
		"1 fewest budgets violated": {[]string{"a: x 1 10 kept", "b: y 5 10"}, "p 9 5",
			[]*policyv1.PodDisruptionBudget{budget("kept", 0)}, "b: y"},
		"1 a budget that allows it": {[]string{"a: x 1 10 kept", "b: y 5 10"}, "p 9 5",
			[]*policyv1.PodDisruptionBudget{budget("kept", 1)}, "a: x"},
		"1 a budget that allows one of two": {[]string{"a: x 1 5 kept | y 1 5 kept", "b: z 5 10"}, "p 9 10",
			[]*policyv1.PodDisruptionBudget{budget("kept", 1)}, "b: z"},
		"1 all budgets violated": {[]string{"a: x 1 10 kept", "b: y 5 10 kept"}, "p 9 5",
			[]*policyv1.PodDisruptionBudget{budget("kept", 0)}, "a: x"},
		"1 a protected pod is avoided": {[]string{"a: x 1 5 kept | y 5 5"}, "p 9 5",
			[]*policyv1.PodDisruptionBudget{budget("kept", 0)}, "a: y"},
		"2 the lowest highest priority":    {[]string{"a: x 5 10", "b: y 4 5 | z 4 5"}, "p 9 10", nil, "b: y z"},
		"3 the smallest sum of priorities": {[]string{"a: x 5 5 | y 4 5", "b: v 5 5 | w 3 5"}, "p 9 10", nil, "b: v w"},
		"3 negative priorities count":      {[]string{"a: x -1 5 | y -1 5", "b: z -1 10"}, "p 9 10", nil, "b: z"},
		"4 fewest victims": {[]string{"a: x 5 4 | y -2147483648 3 | z -2147483648 3",
			"b: v 5 5 | w -2147483648 5"}, "p 9 10", nil, "b: v w"},
		"5 the victims that started last": {[]string{"a: x 5 10 - 50", "b: y 5 10 - 5"}, "p 9 10", nil, "b: y"},
		"5 only those of the highest priority": {[]string{"a: x 5 5 - 5 | y 4 5 - 90", "b: v 5 5 - 50 | w 4 5 - 1"},
			"p 9 10", nil, "a: x y"},
		"a node with free resources":        {[]string{"a: x 1 10", "b"}, "p 9 5", nil, "fits on b"},
		"preemption helps on one node only": {[]string{"a: x 1 10", "b: y 2 1"}, "p 9 10", nil, "a: x"},
	} {
		t.Run(name, func(t *testing.T) {
			all := nodes(c.nodes...)
			before := all.Pods()
			if got := find(all, pod(c.pod), c.budgets...); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if all.Pods() != before {
				t.Errorf("%d pods in the cluster afterwards, want %d", all.Pods(), before)
			}
		})
	}
}

func TestVictimsOfOtherRules(t *testing.T) {
	t.Parallel()
	apart := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: "host", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "loud"}}}}}}
	}
	if got := find(nodes("a: x 1 1 loud | y 1 1"), pod("p 9 1", apart)); got != "a: x" {
		t.Errorf("anti-affinity: %q", got)
	}
	port := func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} }
	all := nodes("a: y 1 1")
	all.Add(cluster.NewPod(pod("web 1 1", port)), "a")
	if got := find(all, pod("p 9 1", port)); got != "a: web" {
		t.Errorf("host port: %q", got)
	}
	selecting := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"host": "b"} }
	if got := find(nodes("a: x 1 10", "b: y 9 10"),
		pod("p 9 5", selecting)); got != "0/2 nodes are available: 1 No preemption victims found for incoming pod, "+
		"1 Preemption is not helpful for scheduling." {
		t.Errorf("selector: %q", got)
	}
}

func TestIneligible(t *testing.T) {
	t.Parallel()
	never := corev1.PreemptNever
	if got := find(nodes("a: x 1 10"),
		pod("p 9 5", func(p *corev1.Pod) { p.Spec.PreemptionPolicy = &never })); got != whyNever {
		t.Errorf("policy Never: %q", got)
	}
	leaving := func(p *corev1.Pod) {
		p.DeletionTimestamp = new(metav1.Now())
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: corev1.PodReasonPreemptionByScheduler}}
	}
	all := nodes("a", "b: y 1 10")
	all.Add(cluster.NewPod(pod("x 1 10", leaving)), "a")
	p := pod("p 9 5")
	all.Nominate(cluster.NewPod(p), "a")
	if got := find(all, p); got != whyTerminating {
		t.Errorf("a victim is terminating: %q", got)
	}
	all.Nominate(cluster.NewPod(p), "b")
	if got := find(all, p); !slices.Contains([]string{"a: x", "b: y"}, got) {
		t.Errorf("nominated for a node without victims: %q", got)
	}
	all.Nominate(cluster.NewPod(p), "a")
	moved := all.Node("a").DeepCopy()
	moved.Spec.Unschedulable = true
	all.SetNode(moved)
	if got := find(all, p); got != "b: y" {
		t.Errorf("its node was cordoned: %q", got)
	}
}
