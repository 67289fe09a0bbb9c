package rules

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/controllers/scheduler/cluster"
)

// testNode returns a ready node with 1 CPU, 1 Gi and at most 3 pods.
func testNode(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"disk": "ssd"}},
		Status: corev1.NodeStatus{
			Allocatable: list("cpu", "1", "memory", "1Gi", "pods", "3"),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, f := range change {
		f(n)
	}
	return n
}

func list(kv ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		out[corev1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return out
}

func testPod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func wants(kv ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list(kv...) }
}

func named(uid string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Name, p.UID = uid, types.UID(uid) }
}

func port(ip string, n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostIP: ip, HostPort: n}} }
}

func tolerating(ts ...corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = ts }
}

func tainted(key, value string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
}

func apart(from string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(from)}}
	}
}

func together(with string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(with)}}
	}
}

func terms(app string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{TopologyKey: "disk",
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
}

func app(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": name} }
}

func elsewhere(p *corev1.Pod) { p.Namespace = "other" }

func disk(value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels = map[string]string{"disk": value} }
}

func broken(n *corev1.Node)   { n.Status.Conditions[0].Status = corev1.ConditionFalse }
func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func nodeTerm(op corev1.NodeSelectorOperator, values ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk",
				Operator: op, Values: values}}}},
		}}}
	}
}

// byTerms sets the required node affinity to these terms.
func byTerms(terms ...corev1.NodeSelectorTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
}

func requirement(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	taint := "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
	notReady := taint
	noPorts := "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
	noMatch := "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
	always := corev1.ContainerRestartPolicyAlways
	for name, c := range map[string]struct {
		node  *corev1.Node
		there []*corev1.Pod
		pod   *corev1.Pod
		why   string // empty: fits
	}{
		"fits":    {testNode(), nil, testPod(wants("cpu", "1", "memory", "1Gi")), ""},
		"no node": {nil, nil, testPod(), "no nodes available to schedule pods"},
		"cpu": {testNode(), []*corev1.Pod{testPod(named("a"), wants("cpu", "600m"))},
			testPod(wants("cpu", "500m")), "0/1 nodes are available: 1 Insufficient cpu."},
		"cpu and memory": {testNode(), nil, testPod(wants("cpu", "2", "memory", "2Gi")),
			"0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."},
		"unknown resource": {testNode(), nil, testPod(wants("example.com/gpu", "1")),
			"0/1 nodes are available: 1 Insufficient example.com/gpu."},
		"zero of an unknown resource": {testNode(), nil, testPod(wants("example.com/gpu", "0")), ""},
		"too many pods": {testNode(), []*corev1.Pod{testPod(named("a")), testPod(named("b")), testPod(named("c"))},
			testPod(), "0/1 nodes are available: 1 Too many pods."},
		"init container counts as the maximum": {testNode(), nil, testPod(wants("cpu", "100m"), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: list("cpu",
				"1")}}}
		}), ""},
		"sidecar counts on top": {testNode(), nil, testPod(wants("cpu", "600m"), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", RestartPolicy: &always,
				Resources: corev1.ResourceRequirements{Requests: list("cpu", "600m")}}}
		}), "0/1 nodes are available: 1 Insufficient cpu."},
		"cordoned": {testNode(cordoned), nil, testPod(), "0/1 nodes are available: 1 node(s) were unschedulable."},
		"cordoned, tolerated": {testNode(cordoned), nil,
			testPod(tolerating(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})), ""},
		"not ready":           {testNode(broken), nil, testPod(), notReady},
		"no condition at all": {testNode(func(n *corev1.Node) { n.Status.Conditions = nil }), nil, testPod(), notReady},
		"not ready, tolerated": {testNode(broken), nil,
			testPod(tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})), ""},
		"taint":           {testNode(tainted("k", "v", corev1.TaintEffectNoSchedule)), nil, testPod(), taint},
		"taint NoExecute": {testNode(tainted("k", "v", corev1.TaintEffectNoExecute)), nil, testPod(), taint},
		"taint preferred": {testNode(tainted("k", "v", corev1.TaintEffectPreferNoSchedule)), nil, testPod(), ""},
		"taint tolerated": {testNode(tainted("k", "v", corev1.TaintEffectNoSchedule)), nil,
			testPod(tolerating(corev1.Toleration{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule})), ""},
		"other value": {testNode(tainted("k", "v", corev1.TaintEffectNoSchedule)), nil,
			testPod(tolerating(corev1.Toleration{Key: "k", Value: "w"})), taint},
		"other effect": {testNode(tainted("k", "v", corev1.TaintEffectNoSchedule)), nil,
			testPod(tolerating(corev1.Toleration{Key: "k", Value: "v", Effect: corev1.TaintEffectNoExecute})), taint},
		"selector": {testNode(), nil,
			testPod(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }), ""},
		"selector misses": {testNode(), nil,
			testPod(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "hdd"} }), noMatch},
		"affinity":                 {testNode(), nil, testPod(nodeTerm(corev1.NodeSelectorOpIn, "ssd", "nvme")), ""},
		"affinity misses":          {testNode(), nil, testPod(nodeTerm(corev1.NodeSelectorOpNotIn, "ssd")), noMatch},
		"affinity: exists":         {testNode(), nil, testPod(nodeTerm(corev1.NodeSelectorOpExists)), ""},
		"affinity: does not exist": {testNode(), nil, testPod(nodeTerm(corev1.NodeSelectorOpDoesNotExist)), noMatch},
		"affinity: not in, without the label": {testNode(func(n *corev1.Node) { n.Labels = nil }), nil,
			testPod(nodeTerm(corev1.NodeSelectorOpNotIn, "ssd")), ""},
		"affinity: greater": {testNode(disk("4")), nil, testPod(nodeTerm(corev1.NodeSelectorOpGt, "3")),
			""},
		"affinity: not greater": {testNode(disk("3")), nil, testPod(nodeTerm(corev1.NodeSelectorOpGt, "3")),
			noMatch},
		"affinity: less": {testNode(disk("2")), nil, testPod(nodeTerm(corev1.NodeSelectorOpLt, "3")),
			""},
		"affinity: less, not a number": {testNode(), nil, testPod(nodeTerm(corev1.NodeSelectorOpLt, "3")), noMatch},
		"affinity: one of the terms": {testNode(), nil, testPod(byTerms(
			corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{requirement("disk",
				corev1.NodeSelectorOpIn, "hdd")}},
			corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{requirement("disk",
				corev1.NodeSelectorOpIn, "ssd")}})), ""},
		"affinity: all of a term": {testNode(), nil, testPod(byTerms(corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{requirement("disk", corev1.NodeSelectorOpIn, "ssd"),
				requirement("zone", corev1.NodeSelectorOpExists)}})), noMatch},
		"affinity: label and name": {testNode(), nil, testPod(byTerms(corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{requirement("disk", corev1.NodeSelectorOpIn, "ssd")},
			MatchFields:      []corev1.NodeSelectorRequirement{requirement("metadata.name", corev1.NodeSelectorOpNotIn, "m")}})),
			""},
		"affinity: another name": {testNode(), nil, testPod(byTerms(corev1.NodeSelectorTerm{
			MatchFields: []corev1.NodeSelectorRequirement{requirement("metadata.name", corev1.NodeSelectorOpNotIn, "n")}})),
			noMatch},
		"affinity: an empty term matches nothing": {testNode(), nil, testPod(byTerms(corev1.NodeSelectorTerm{})), noMatch},
		"selector and affinity": {testNode(), nil, testPod(nodeTerm(corev1.NodeSelectorOpIn, "ssd"),
			func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "hdd"} }), noMatch},
		"ephemeral storage": {testNode(func(n *corev1.Node) {
			n.Status.Allocatable["ephemeral-storage"] = resource.MustParse(
				"1Gi")
		}),
			[]*corev1.Pod{testPod(named("a"), wants("ephemeral-storage", "600Mi"))},
			testPod(wants("ephemeral-storage", "500Mi")), "0/1 nodes are available: 1 Insufficient ephemeral-storage."},
		"huge pages": {testNode(func(n *corev1.Node) { n.Status.Allocatable["hugepages-2Mi"] = resource.MustParse("4Mi") }),
			nil,
			testPod(wants("hugepages-2Mi", "6Mi")), "0/1 nodes are available: 1 Insufficient hugepages-2Mi."},
		"a port of another protocol": {testNode(), []*corev1.Pod{testPod(named("a"), port("", 80))},
			testPod(port("", 80), func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Protocol = corev1.ProtocolUDP }), ""},
		"a sidecar's port": {testNode(), []*corev1.Pod{testPod(named("a"), port("", 80))}, testPod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", RestartPolicy: &always,
				Ports: []corev1.ContainerPort{{HostPort: 80}}}}
		}), noPorts},
		"Exists without key tolerates any key": {testNode(tainted("k", "v", corev1.TaintEffectNoSchedule)), nil,
			testPod(tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})),
			""},
		"a toleration without effect tolerates any effect": {testNode(tainted("k", "v", corev1.TaintEffectNoExecute)), nil,
			testPod(tolerating(corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists})), ""},
		"port free":  {testNode(), []*corev1.Pod{testPod(named("a"), port("", 80))}, testPod(port("", 81)), ""},
		"port taken": {testNode(), []*corev1.Pod{testPod(named("a"), port("", 80))}, testPod(port("127.0.0.1", 80)), noPorts},
		"port on other ip": {testNode(), []*corev1.Pod{testPod(named("a"), port("127.0.0.2", 80))},
			testPod(port("127.0.0.1", 80)), ""},
		"anti-affinity": {testNode(), []*corev1.Pod{testPod(named("a"), app("x"))}, testPod(apart("x")),
			"0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."},
		"anti-affinity of a running pod": {testNode(), []*corev1.Pod{testPod(named("a"), apart("x"))}, testPod(app("x")),
			"0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."},
		"anti-affinity in another namespace": {testNode(), []*corev1.Pod{testPod(named("a"), app("x"), elsewhere)},
			testPod(apart("x")), ""},
		"affinity to a running pod": {testNode(), []*corev1.Pod{testPod(named("a"), app("x"))}, testPod(together("x")), ""},
		"affinity to no pod": {testNode(), []*corev1.Pod{testPod(named("a"), app("y"))},
			testPod(together("x")), "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."},
		"affinity to its own labels, first pod": {testNode(), nil, testPod(together("x"), app("x")), ""},
		"no domain": {testNode(func(n *corev1.Node) { n.Labels = nil }), nil,
			testPod(together("x"), app("x")), "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."},
		"node being deleted": {testNode(func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} }), nil,
			testPod(), "no nodes available to schedule pods"},
	} {
		t.Run(name, func(t *testing.T) {
			all := cluster.New()
			if c.node != nil {
				all.SetNode(c.node)
			}
			for _, p := range c.there {
				all.Add(cluster.NewPod(p), "n")
			}
			chooser := Chooser{Rules: All()}
			out := chooser.Choose(NewCycle(all, cluster.NewPod(c.pod)))
			if why := message(&out); why != c.why {
				t.Errorf("%q, want %q", why, c.why)
			}
		})
	}
}

// message returns the reason why no node fits; empty if one does.
func message(out *Outcome) string {
	if out.Node != nil {
		return ""
	}
	return out.Message()
}
