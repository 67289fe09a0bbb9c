package deployment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/garbagecollector"
	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
	"monopod/controllers/replicaset"
)

// TestRandomSequences simulates users, nodes and crashes in random order, often before the last rollout is complete,
// over the real API with the controllers of ReplicaSets and the garbage collector. At every change of a pod it checks
// that the pods do not exceed replicas plus surge, that at least as many are available as the strategy requires, and
// that no pod changes its owner. At the end the rollout of the Deployment must be complete.
func TestRandomSequences(t *testing.T) {
	t.Parallel()
	apitest.Seeds(t, 5, randomSequence)
}

func randomSequence(t *testing.T, seed uint64) {
	api := apitest.New(t)
	api.Events.Watch()
	w := &world{cluster: cluster{api, t}, rng: rand.New(rand.NewPCG(seed, 1)), link: &apitest.Link{Client: api.Client},
		existing: map[types.UID]*corev1.Pod{}, owners: map[types.UID]types.UID{}}
	deps := api.Deps()
	deps.Client = w.link
	sets, err := replicaset.New(deps, &apitest.Events{}, replicaset.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w.controllers = []follow.Controller{sets, New(deps, &api.Events, Config{}),
		garbagecollector.New(deps, &api.Events, garbagecollector.Config{Kinds: apitest.Kinds()})}
	w.start()
	stop := w.watch()
	defer func() {
		if names := deps.Metrics.BusyQueues(); len(names) > 0 {
			t.Errorf("busy queues: %v", names)
		}
		w.stop()
		stop()
	}()

	w.create()
	for range 30 {
		w.act()
		if w.rng.IntN(3) > 0 { // otherwise the next action follows before the controllers have settled
			apitest.Settle(time.Duration(w.rng.IntN(4000)) * time.Millisecond)
		} else if apitest.Settle(time.Minute); w.atRest() {
			w.mark(true)
		}
	}
	w.finish()
}

// start runs the controllers.
func (w *world) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, c := range w.controllers {
		running.Go(func() {
			if err := c.Run(ctx); err != nil {
				w.t.Error(err)
			}
		})
	}
	w.stop = func() { cancel(); running.Wait() }
}

// world is a cluster with random actions. Until the cluster is at rest, the limits are the widest of all actions since
// the last rest.
type world struct {
	cluster
	rng         *rand.Rand
	link        *apitest.Link
	controllers []follow.Controller
	stop        func() // stops the controllers

	mu       sync.Mutex                // guards the fields below
	most     int                       // maximum number of pods
	fewest   int                       // minimum number of available pods
	said     []string                  // actions since the last rest
	existing map[types.UID]*corev1.Pod // pods with an owner that are not terminating
	owners   map[types.UID]types.UID
}

const unlimited = 1 << 20

// mark widens the limits to those of the Deployment, or sets them if the cluster is at rest.
func (w *world) mark(rest bool) {
	d, ok := apitest.Get[*appsv1.Deployment](w.API, "default", "web")
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !ok:
		w.most, w.fewest = unlimited, 0
	case rest:
		w.most, w.fewest, w.said = int(most(d)), int(fewest(d)), nil
	default:
		w.most, w.fewest = max(w.most, int(most(d))), min(w.fewest, int(fewest(d)))
	}
	if ok && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		w.fewest = 0
	}
}

// missing lowers the minimum number of available pods by n.
func (w *world) missing(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fewest -= n
}

// anything removes both limits.
func (w *world) anything() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most, w.fewest = unlimited, 0
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

// watch watches the pods: it checks the limits, and acts as their node.
func (w *world) watch() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	pods := client.Selector{Resource: client.Pods, Namespace: "default"}
	_, now, err := w.Client.List(ctx, pods)
	if err != nil {
		w.t.Fatal(err)
	}
	events, err := w.Client.Watch(ctx, pods, now)
	if err != nil {
		w.t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), 2))
	var wg sync.WaitGroup
	wg.Go(func() {
		for e := range events {
			p, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			w.check(e.Type, p)
			wait := time.Duration(rng.IntN(3000)) * time.Millisecond
			switch {
			case e.Type == watch.Added:
				wg.Go(func() { w.run(ctx, p, wait) })
			case e.Type == watch.Modified && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodFailed:
				wg.Go(func() {
					time.Sleep(wait)
					w.Client.Delete(ctx, client.RefOf(p),
						metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
				})
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// run makes a pod ready after a while, unless its image is bad.
func (w *world) run(ctx context.Context, p *corev1.Pod, wait time.Duration) {
	time.Sleep(wait / 2)
	client.Update(ctx, w.Client, p, "binding", func(p *corev1.Pod) error { p.Spec.NodeName = "n"; return nil })
	time.Sleep(wait / 2)
	if p.Spec.Containers[0].Image == "bad" {
		return
	}
	client.Update(ctx, w.Client, p, "status", func(p *corev1.Pod) error {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.Now()}}
		return nil
	})
}

// check checks the limits after each change of a pod.
func (w *world) check(typ watch.EventType, p *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	owner := metav1.GetControllerOf(p)
	if owner != nil {
		if before, ok := w.owners[p.UID]; ok && before != owner.UID {
			w.t.Errorf("pod %s changed its owner, after %q", p.Name, w.said)
		}
		w.owners[p.UID] = owner.UID
	} else {
		delete(w.owners, p.UID)
	}
	delete(w.existing, p.UID)
	if typ != watch.Deleted && owner != nil && p.DeletionTimestamp == nil {
		w.existing[p.UID] = p
	}
	total, available := 0, 0
	for _, p := range w.existing {
		rs, ok := apitest.Get[*appsv1.ReplicaSet](w.API, "default", metav1.GetControllerOf(p).Name)
		if !ok || metav1.GetControllerOf(rs) == nil {
			continue // the ReplicaSet was deleted or released
		}
		total++
		if podstate.Ready(p) {
			available++
		}
	}
	if total > w.most {
		w.t.Errorf("%d pods, at most %d are allowed, after %q", total, w.most, w.said)
	}
	if available < w.fewest {
		w.t.Errorf("%d pods are available, want at least %d, after %q", available, w.fewest, w.said)
	}
}

var strategies = []func(*appsv1.Deployment){
	rolling("25%", "25%"), rolling("1", "0"), rolling("0", "1"), rolling("100%", "50%"), rolling("3", "2"), recreating,
}

func (w *world) create() {
	w.anything()
	d := web(int32(w.rng.IntN(8)), strategies[w.rng.IntN(len(strategies))])
	d.Spec.RevisionHistoryLimit = new(int32(w.rng.IntN(4)))
	w.Create(d)
	w.say("create %d %v", *d.Spec.Replicas, d.Spec.Strategy)
}

// act performs one random action.
func (w *world) act() {
	d, ok := apitest.Get[*appsv1.Deployment](w.API, "default", "web")
	if !ok {
		w.create()
		return
	}
	if d.DeletionTimestamp != nil {
		return
	}
	switch n := w.rng.IntN(100); {
	case n < 28:
		image := []string{"v1", "v2", "v3", "v4", "v5", "bad"}[w.rng.IntN(6)]
		w.edit("image "+image, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
	case n < 46:
		size := int32(w.rng.IntN(12))
		if size < desired(d) && !w.atRest() {
			w.mu.Lock()
			w.fewest = 0 // proportional scaling may delete available pods
			w.mu.Unlock()
		}
		w.edit(fmt.Sprint("scale ", size), func(d *appsv1.Deployment) { d.Spec.Replicas = &size })
	case n < 55:
		w.edit("pause or resume", func(d *appsv1.Deployment) { d.Spec.Paused = !d.Spec.Paused })
	case n < 60:
		change := strategies[w.rng.IntN(len(strategies))]
		w.edit("strategy", func(d *appsv1.Deployment) { d.Spec.Strategy = appsv1.DeploymentStrategy{}; change(d) })
	case n < 73:
		w.pod("kill", func(p *corev1.Pod) error {
			_, err := w.Client.Delete(w.t.Context(), client.RefOf(p), metav1.DeleteOptions{})
			return err
		})
	case n < 80:
		w.pod("relabel", func(p *corev1.Pod) error {
			_, err := client.Update(w.t.Context(), w.Client, p, "",
				func(p *corev1.Pod) error { p.Labels["app"] = "debug"; return nil })
			return err
		})
	case n < 84:
		w.set("relabel", func(rs *appsv1.ReplicaSet) error {
			_, err := client.Update(w.t.Context(), w.Client, rs, "", func(rs *appsv1.ReplicaSet) error {
				rs.Labels["app"] = map[string]string{"web": "debug", "debug": "web"}[rs.Labels["app"]]
				return nil
			})
			return err
		})
	case n < 87:
		w.set("delete", func(rs *appsv1.ReplicaSet) error {
			_, err := w.Client.Delete(w.t.Context(), client.RefOf(rs), metav1.DeleteOptions{})
			return err
		})
	case n < 93:
		w.say("restart")
		w.stop()
		time.Sleep(time.Duration(w.rng.IntN(5000)) * time.Millisecond)
		w.start()
	case n < 97:
		w.say("lost watches")
		w.link.Cut()
	default:
		policy := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground,
			metav1.DeletePropagationOrphan}[w.rng.IntN(3)]
		w.anything()
		w.say("delete %s", policy)
		w.Delete(d, policy)
	}
}

// edit changes the Deployment, and widens the limits to those of the changed one.
func (w *world) edit(what string, change func(*appsv1.Deployment)) {
	w.say("%s", what)
	next, ok := apitest.Get[*appsv1.Deployment](w.API, "default", "web")
	if !ok {
		return
	}
	next = next.DeepCopy()
	change(next)
	w.mu.Lock()
	w.most, w.fewest = max(w.most, int(most(next))), min(w.fewest, int(fewest(next)))
	if next.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		w.fewest = 0
	}
	w.mu.Unlock()
	apitest.Change(w.API, next, "", change)
}

// pod performs an action on a random pod that makes the pod unavailable.
func (w *world) pod(what string, do func(*corev1.Pod) error) {
	pods := slices.DeleteFunc(w.pods(), func(p *corev1.Pod) bool { return p.Labels["app"] != "web" })
	if len(pods) == 0 {
		return
	}
	p := pods[w.rng.IntN(len(pods))]
	w.say("%s pod %s", what, p.Name)
	w.missing(1)
	if err := do(p); err != nil {
		w.t.Error(err)
	}
}

// set performs an action on a random ReplicaSet that may orphan its pods.
func (w *world) set(what string, do func(*appsv1.ReplicaSet) error) {
	sets := apitest.List[*appsv1.ReplicaSet](w.API, "default")
	if len(sets) == 0 {
		return
	}
	rs := sets[w.rng.IntN(len(sets))]
	w.say("%s ReplicaSet %s", what, rs.Name)
	w.anything()
	if err := do(rs); err != nil {
		w.t.Error(err)
	}
}

// atRest reports whether the last rollout is complete and healthy.
func (w *world) atRest() bool {
	d, ok := apitest.Get[*appsv1.Deployment](w.API, "default", "web")
	return ok && !d.Spec.Paused && complete(d, &d.Status) && d.Status.TerminatingReplicas != nil &&
		*d.Status.TerminatingReplicas == 0
}

// finish rolls out an image that becomes ready, and checks the result.
func (w *world) finish() {
	apitest.Settle(5 * time.Minute) // until a pending deletion is complete
	if _, ok := apitest.Get[*appsv1.Deployment](w.API, "default", "web"); !ok {
		w.create()
	}
	w.edit("finish", func(d *appsv1.Deployment) {
		d.Spec.Paused, d.Spec.Template.Spec.Containers[0].Image = false, "last"
	})
	apitest.Settle(20 * time.Minute)
	d := w.web()
	if !w.atRest() || !progressingBy(d, reasonAvailable) {
		w.t.Errorf("not at rest after %q: %+v", w.said, d.Status)
	}
	mine := 0
	for _, rs := range apitest.List[*appsv1.ReplicaSet](w.API, "default") {
		if metav1.IsControlledBy(rs, d) {
			mine++
			if last := rs.Spec.Template.Spec.Containers[0].Image == "last"; last != (size(rs) == desired(d)) && desired(d) > 0 ||
				!last && size(rs) != 0 {
				w.t.Errorf("ReplicaSet %s has %d replicas after %q", rs.Name, size(rs), w.said)
			}
		} else if rs.Labels["app"] == "web" {
			w.t.Errorf("ReplicaSet %s was not adopted", rs.Name)
		}
	}
	if mine > int(*d.Spec.RevisionHistoryLimit)+1 {
		w.t.Errorf("%d ReplicaSets, the limit of old ones is %d", mine, *d.Spec.RevisionHistoryLimit)
	}
	before := w.Store.Revision()
	apitest.Settle(24 * time.Hour)
	if after := w.Store.Revision(); after != before {
		w.t.Errorf("%d writes at rest", after-before)
	}
}

func progressingBy(d *appsv1.Deployment, reason string) bool {
	c := conditionOf(&d.Status, appsv1.DeploymentProgressing)
	return c != nil && c.Reason == reason
}
