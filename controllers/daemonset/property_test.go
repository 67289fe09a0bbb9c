package daemonset

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/follow"
	"monopod/controllers/internal/apitest"
)

// TestRandomSequences simulates users, nodes and crashes in random order. Once pods become ready and terminate when
// requested, the DaemonSet must come to rest with one pod of the newest template on each node.
func TestRandomSequences(t *testing.T) {
	t.Parallel()
	apitest.Seeds(t, 5, randomSequence)
}

// world is a cluster with random actions of users, nodes and crashes.
type world struct {
	cluster
	rng   *rand.Rand
	image int
}

func randomSequence(t *testing.T, seed uint64) {
	api := apitest.New(t)
	api.Events.Watch()
	w := &world{cluster: cluster{api, t}, rng: rand.New(rand.NewPCG(seed, 1))}
	deps := api.Deps()
	restart := api.Restarting(func() follow.Controller { return New(deps, &api.Events, Config{}) })
	for i := range 4 {
		api.Create(apitest.Node(fmt.Sprint("n", i)))
	}
	api.Create(daemon())
	for range 60 {
		if w.rng.IntN(10) == 0 {
			restart()
		} else {
			w.act()
		}
		apitest.Settle(time.Duration(w.rng.IntN(2000)) * time.Millisecond)
	}
	w.next()
	w.finish()
}

func (w *world) next() {
	w.image++
	w.change(func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("v", w.image) })
}

// act performs one random action, most often on a node.
func (w *world) act() {
	pods := w.pods()
	if w.rng.IntN(3) > 0 {
		w.nodes(1 + w.rng.IntN(2))
		return
	}
	switch kind := w.rng.IntN(7); {
	case kind == 0:
		w.next()
	case kind == 1:
		w.change([]func(*appsv1.DaemonSet){rolling("1", "0"), rolling("50%", "0"), rolling("0", "1"), rolling("0", "2"),
			onDelete}[w.rng.IntN(5)])
	case kind == 2:
		w.node(fmt.Sprint("n", w.rng.IntN(4)), func(n *corev1.Node) {
			effect := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}[w.rng.IntN(2)]
			n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: effect}}
		})
	case kind == 3:
		w.node(fmt.Sprint("n", w.rng.IntN(4)), func(n *corev1.Node) { n.Spec.Taints = nil })
	case len(pods) == 0:
	case kind == 4:
		w.Delete(pods[w.rng.IntN(len(pods))], "")
	case kind == 5:
		w.Phase(pods[w.rng.IntN(len(pods))], corev1.PodFailed, false)
	case kind == 6:
		apitest.Change(w.API, pods[w.rng.IntN(len(pods))], "", func(p *corev1.Pod) { p.OwnerReferences = nil })
	}
}

// nodes bind, start and end up to n pods.
func (w *world) nodes(n int) {
	for _, p := range w.pods() {
		switch {
		case n == 0:
			return
		case p.DeletionTimestamp != nil:
			w.end()
		case p.Status.Phase == corev1.PodPending && p.Spec.NodeName == "":
			apitest.Change(w.API, p, "binding", func(p *corev1.Pod) { p.Spec.NodeName = nodeOf(p) })
		case p.Status.Phase == corev1.PodPending:
			w.Phase(p, corev1.PodRunning, true)
		default:
			continue
		}
		n--
	}
}

func (w *world) finish() {
	w.change(rolling("1", "0"))
	for i := range 4 {
		w.node(fmt.Sprint("n", i), func(n *corev1.Node) { n.Spec.Taints = nil })
	}
	for range 40 {
		w.nodes(2)
		apitest.Settle(time.Minute)
	}
	ds, on := w.ds(), map[string]int{}
	for _, p := range w.pods() {
		on[nodeOf(p)]++
		if p.Spec.Containers[0].Image != fmt.Sprint("v", w.image) || !metav1.IsControlledBy(p, ds) ||
			p.DeletionTimestamp != nil {
			w.t.Errorf("a pod of %s on %s is left", p.Spec.Containers[0].Image, nodeOf(p))
		}
	}
	for i := range 4 {
		if n := on[fmt.Sprint("n", i)]; n != 1 {
			w.t.Errorf("%d pods on n%d", n, i)
		}
	}
	if s := ds.Status; s.DesiredNumberScheduled != 4 || s.NumberAvailable != 4 || s.UpdatedNumberScheduled != 4 ||
		s.NumberMisscheduled != 0 {
		w.t.Errorf("status %+v", s)
	}
	before := w.Store.Revision()
	apitest.Settle(time.Hour)
	if after := w.Store.Revision(); after != before {
		w.t.Errorf("%d writes in an hour at rest", after-before)
	}
}
