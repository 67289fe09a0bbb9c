package statefulset

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
// requested, the StatefulSet must come to rest with all pods of the newest template.
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
	change := []func(*appsv1.StatefulSet){rolling(0, fmt.Sprint(1+w.rng.IntN(3)))}
	if w.rng.IntN(2) == 0 {
		change = append(change, parallel)
	}
	api.Create(db(3, change...))
	for range 60 {
		if w.rng.IntN(10) == 0 {
			restart()
		} else {
			w.act()
		}
		apitest.Settle(time.Duration(w.rng.IntN(2000)) * time.Millisecond)
	}
	w.image++
	w.change(func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("v", w.image) })
	w.finish()
}

// act performs one random action, most often on a node.
func (w *world) act() {
	pods := apitest.List[*corev1.Pod](w.API, "default")
	if w.rng.IntN(3) > 0 {
		w.nodes(1 + w.rng.IntN(2))
		return
	}
	switch kind := w.rng.IntN(5); {
	case kind == 0:
		w.image++
		w.change(func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("v", w.image) })
	case kind == 1:
		w.scale(int32(w.rng.IntN(6)))
	case len(pods) == 0:
	case kind == 2:
		w.Delete(pods[w.rng.IntN(len(pods))], "")
	case kind == 3:
		w.Phase(pods[w.rng.IntN(len(pods))], corev1.PodFailed, false)
	case kind == 4:
		apitest.Change(w.API, pods[w.rng.IntN(len(pods))], "", func(p *corev1.Pod) { p.OwnerReferences = nil })
	}
}

// nodes bind, start and end up to n pods.
func (w *world) nodes(n int) {
	for _, p := range apitest.List[*corev1.Pod](w.API, "default") {
		switch {
		case n == 0:
			return
		case p.DeletionTimestamp != nil:
			w.end(p.Name)
		case p.Status.Phase == corev1.PodPending:
			w.start(p.Name)
		default:
			continue
		}
		n--
	}
}

func (w *world) finish() {
	for range 40 {
		w.nodes(1)
		apitest.Settle(30 * time.Second)
	}
	set := w.set()
	pods := apitest.List[*corev1.Pod](w.API, "default")
	for _, p := range pods {
		if p.Spec.Containers[0].Image != fmt.Sprint("v", w.image) || !wanted(set, ordinalOf(set, p)) ||
			!metav1.IsControlledBy(p, set) || p.DeletionTimestamp != nil {
			w.t.Errorf("unexpected pod %s with image %s, deleted %v", p.Name, p.Spec.Containers[0].Image, p.DeletionTimestamp)
		}
	}
	s := set.Status
	if n := *set.Spec.Replicas; len(pods) != int(n) || s.Replicas != n || s.AvailableReplicas != n ||
		s.CurrentReplicas != n || s.UpdatedReplicas != n || s.CurrentRevision != s.UpdateRevision {
		w.t.Errorf("%d pods, want %d, status %+v", len(pods), n, s)
	}
	before := w.Store.Revision()
	apitest.Settle(time.Hour)
	if after := w.Store.Revision(); after != before {
		w.t.Errorf("%d writes in an hour at rest", after-before)
	}
}
