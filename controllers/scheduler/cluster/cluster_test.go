package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

func randomPod(r *rand.Rand, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns", r.IntN(2)), Name: name,
		UID:    types.UID(name),
		Labels: map[string]string{"app": fmt.Sprint("a", r.IntN(3))}}}
	p.Spec.Containers = []corev1.Container{{Name: "c",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			"cpu":             *resource.NewQuantity(int64(r.IntN(3)), resource.DecimalSI),
			"example.com/gpu": *resource.NewQuantity(int64(r.IntN(2)), resource.DecimalSI)}}}}
	if r.IntN(2) == 0 {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: int32(1 + r.IntN(3))}}
	}
	if r.IntN(2) == 0 {
		p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(fmt.Sprint("rs", r.IntN(2))), Controller: new(true)}}
	}
	if r.IntN(2) == 0 {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("a",
				r.IntN(3))}}}}}}
	}
	return p
}

// TestCountsMatchFreshCluster tests that after any sequence of changes the incremental counts equal those of a new
// cluster with the same pods.
func TestCountsMatchFreshCluster(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	all, pods := New(), map[types.UID]*corev1.Pod{}
	at := map[types.UID]string{}
	selectors := []*Selector{}
	for i := range 3 {
		for ns := range 2 {
			selectors = append(selectors, InNamespace(fmt.Sprint("ns", ns),
				labels.SelectorFromSet(labels.Set{"app": fmt.Sprint("a", i)})))
		}
	}
	for i := range 1000 {
		if r.IntN(2) == 0 || len(pods) == 0 {
			p := randomPod(r, fmt.Sprint("p", i))
			pods[p.UID], at[p.UID] = p, fmt.Sprint("n", r.IntN(4))
			all.Add(NewPod(p), at[p.UID])
		} else {
			for uid := range pods {
				all.Remove(uid)
				delete(pods, uid)
				break
			}
		}
		all.CountOf(selectors[r.IntN(len(selectors))])
		if i%50 != 0 {
			continue
		}
		fresh := New()
		for uid, p := range pods {
			fresh.Add(NewPod(p), at[uid])
		}
		for _, s := range selectors {
			if a, b := all.CountOf(s).ByNode, fresh.CountOf(s).ByNode; !maps.Equal(a, b) {
				t.Fatalf("%s: %v, want %v", s.key, a, b)
			}
		}
		if !reflect.DeepEqual(all.owned, fresh.owned) || len(all.termCounts) != len(fresh.termCounts) ||
			len(all.nodes) != len(fresh.nodes) {
			t.Fatalf("owned %v, want %v; terms %d, want %d; nodes %d, want %d", all.owned, fresh.owned, len(all.termCounts),
				len(fresh.termCounts), len(all.nodes), len(fresh.nodes))
		}
		for id, have := range all.termCounts {
			if !maps.Equal(have.byNode, fresh.termCounts[id].byNode) {
				t.Fatalf("%s: %v, want %v", id, have.byNode, fresh.termCounts[id].byNode)
			}
		}
		for name, n := range all.nodes {
			if want := fresh.nodes[name]; n.Requested.CPU != want.Requested.CPU || !maps.Equal(n.Requested.More,
				want.Requested.More) ||
				n.NonZeroRequested.CPU != want.NonZeroRequested.CPU || n.usedHostPorts != want.usedHostPorts {
				t.Fatalf("%s: %+v, want %+v", name, n.Requested, want.Requested)
			}
		}
	}
}

func TestLeastRecentlyUsedCountIsDropped(t *testing.T) {
	t.Parallel()
	all := New()
	selector := func(i int) *Selector {
		return InNamespace("ns", labels.SelectorFromSet(labels.Set{"app": fmt.Sprint(i)}))
	}
	for i := range maxCounts {
		all.CountOf(selector(i))
	}
	all.CountOf(selector(0))
	all.CountOf(selector(maxCounts))
	if len(all.counts) != maxCounts || all.counts[selector(0).key] == nil || all.counts[selector(1).key] != nil {
		t.Errorf("%d counts; first cached: %t, second cached: %t, want true and false", len(all.counts),
			all.counts[selector(0).key] != nil, all.counts[selector(1).key] != nil)
	}
}

func TestNodesAreAddedAndRemovedWithTheirPods(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	all := New()
	node := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": name}},
			Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"i:latest"}, SizeBytes: 1}}}}
	}
	all.Add(NewPod(randomPod(r, "p")), "a") // the pod is known before its node
	if all.Node("a") != nil || len(all.Nodes()) != 0 {
		t.Error("Nodes lists a node that is known only from its pod")
	}
	all.SetNode(node("a"))
	all.SetNode(node("b"))
	all.SetNode(node("a"))
	if len(all.Nodes()) != 2 || len(all.Node("a").Pods) != 1 || all.NodesWithImage("i:latest") != 2 {
		t.Errorf("%d nodes, %d with the image", len(all.Nodes()), all.NodesWithImage("i:latest"))
	}
	all.DropNode("a")
	if len(all.Nodes()) != 1 || all.Node("b") == nil || all.NodesWithImage("i:latest") != 1 || all.ByDomain("zone",
		map[string]int{"a": 1})["a"] != 0 {
		t.Error("a removed node still counts")
	}
	all.SetNode(node("a"))
	if len(all.Node("a").Pods) != 1 {
		t.Error("a node that was removed and added again lost its pod")
	}
	leaving := node("b")
	leaving.DeletionTimestamp = new(metav1.Now())
	all.SetNode(leaving)
	if all.Node("b") != nil || len(all.Nodes()) != 1 {
		t.Error("Nodes lists a node that is being deleted")
	}
	all.Remove("p")
	all.DropNode("a")
	all.DropNode("b")
	if len(all.nodes)+len(all.images)+len(all.pods) != 0 {
		t.Errorf("left: %v %v %v", all.nodes, all.images, all.pods)
	}
}

func TestNodeDifference(t *testing.T) {
	t.Parallel()
	ready := func() *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
			Status: corev1.ConditionTrue}}}}
	}
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		want   ChangeKind
	}{
		"a heartbeat": {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, 0},
		"an image":    {func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{}} }, 0},
		"not ready":   {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, NodeTaints},
		"a taint": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "k",
				Effect: corev1.TaintEffectNoSchedule}}
		}, NodeTaints},
		"cordoned": {func(n *corev1.Node) { n.Spec.Unschedulable = true }, NodeTaints},
		"a label":  {func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, NodeLabels},
		"more CPU": {func(n *corev1.Node) { n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("1")} },
			NodeAllocatable},
	} {
		n := ready()
		c.change(n)
		if got := NodeChange(ready(), n); got != c.want {
			t.Errorf("%s: %b, want %b", name, got, c.want)
		}
	}
}
