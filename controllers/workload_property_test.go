package controllers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
)

// TestRandomWorkloads simulates users, nodes and crashes in random order, for workloads of all kinds and with all
// controllers of the manager. At every change of a pod it checks that each node has at most one pod of the DaemonSet,
// or two on as many nodes as maxSurge, that the pods of a Job do not exceed its parallelism, that no pod changes its
// owner, and, if only templates were changed since the last rest, that enough pods are available. An Event must explain
// every deletion by a controller. At the end all workloads must be at rest.
func TestRandomWorkloads(t *testing.T) {
	t.Parallel()
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { randomWorkloads(t, uint64(seed)) })
		})
	}
}

// seeds is the number of random sequences, one for each set of rollout limits. In every other sequence the watches are
// not ordered, as with etcd.
const seeds = 3

// town is a cluster with random actions.
type town struct {
	*apitest.API
	rng  *rand.Rand
	link *deletions
	m    *Manager
	stop func() // stops the controllers

	began time.Time

	mu       sync.Mutex // guards the fields below
	nodes    map[string]bool
	existing map[types.UID]*corev1.Pod
	owners   map[types.UID]types.UID
	calm     bool // only templates were changed since the last rest
	said     []string
	jobs     int

	unavailable int // maxUnavailable of the StatefulSet
	surge       int // maxSurge of the DaemonSet; 0: maxUnavailable is 1
}

const nodesOfTown = 3

func randomWorkloads(t *testing.T, seed uint64) {
	api := apitest.New(t)
	w := &town{API: api, rng: rand.New(rand.NewPCG(seed, 3)), nodes: map[string]bool{},
		existing: map[types.UID]*corev1.Pod{}, owners: map[types.UID]types.UID{}}
	w.unavailable, w.surge = 1+int(seed%3), int(seed%3)
	w.link = &deletions{Link: &apitest.Link{Client: api.Client, Unordered: seed%2 == 1}, of: map[types.UID]int{}}
	w.link.load.Store(someLoad(w.rng))
	w.began = time.Now()
	cfg := served()
	cfg.NodeMonitorGracePeriod.Duration = 10000 * time.Hour // the test does not renew leases
	m, err := New(Deps{Client: w.link, Metrics: api.Registry}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.m = m
	w.start()
	defer func() { w.stop() }()
	defer w.agents()()
	for i := range nodesOfTown {
		w.Create(apitest.Node(fmt.Sprint("n", i)))
		w.back(fmt.Sprint("n", i))
	}
	w.create()
	for range 40 {
		w.act()
		if w.rng.IntN(3) > 0 {
			apitest.Settle(time.Duration(w.rng.IntN(5000)) * time.Millisecond)
			continue
		}
		apitest.Settle(2 * time.Minute)
		w.explain()
		if w.atRest() {
			w.mu.Lock()
			w.calm, w.said = true, nil
			w.mu.Unlock()
		}
	}
	w.finish()
}

// start runs the controllers.
func (w *town) start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.m.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.T.Error(err)
		}
	}
}

// agents acts as the nodes' agents: it runs bound pods, and completes deletions.
func (w *town) agents() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	pods := client.Selector{Resource: client.Pods, Namespace: "default"}
	_, now, err := w.List(ctx, pods)
	if err != nil {
		w.T.Fatal(err)
	}
	events, err := w.Watch(ctx, pods, now)
	if err != nil {
		w.T.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), 4))
	var wg sync.WaitGroup
	wg.Go(func() {
		started := map[types.UID]bool{}
		for e := range events {
			p, ok := e.Object.(*corev1.Pod)
			if !ok {
				w.T.Errorf("the watch has ended: %v", e.Object)
				continue
			}
			w.check(e.Type, p)
			wait, fails := time.Duration(rng.IntN(3000))*time.Millisecond, rng.IntN(10) == 0
			switch {
			case e.Type == watch.Deleted || p.Spec.NodeName == "":
			case p.DeletionTimestamp != nil:
				wg.Go(func() { time.Sleep(wait); w.end(ctx, p) })
			case !started[p.UID]:
				started[p.UID] = true
				wg.Go(func() { w.run(ctx, p, wait, fails) })
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func (w *town) alive(node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[node]
}

// phase sets the phase of a pod, unless the pod has finished or its node is dead.
func (w *town) phase(ctx context.Context, p *corev1.Pod, phase corev1.PodPhase) {
	if !w.alive(p.Spec.NodeName) {
		return
	}
	_, _ = client.Update(ctx, w.Client, p, "status", func(cur *corev1.Pod) error {
		if cur.UID != p.UID || podstate.Finished(cur) {
			return fmt.Errorf("pod %s has ended", p.Name)
		}
		ready := corev1.ConditionFalse
		if phase == corev1.PodRunning {
			ready = corev1.ConditionTrue
		}
		if cur.Status.Phase = phase; cur.Status.StartTime == nil {
			cur.Status.StartTime = new(metav1.Now())
		}
		cur.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready,
			LastTransitionTime: metav1.Now()}}
		return nil
	})
}

// run makes a pod ready after wait. A pod of a Job then succeeds or fails.
func (w *town) run(ctx context.Context, p *corev1.Pod, wait time.Duration, fails bool) {
	time.Sleep(wait)
	w.phase(ctx, p, corev1.PodRunning)
	if p.Labels[batchv1.JobNameLabel] == "" {
		return
	}
	time.Sleep(wait)
	if fails {
		w.phase(ctx, p, corev1.PodFailed)
	} else {
		w.phase(ctx, p, corev1.PodSucceeded)
	}
}

// end completes the deletion of a pod, unless its node is dead.
func (w *town) end(ctx context.Context, p *corev1.Pod) {
	w.phase(ctx, p, corev1.PodFailed)
	if w.alive(p.Spec.NodeName) {
		_, _ = w.Client.Delete(ctx, client.RefOf(p),
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	}
}

// check checks the limits after each change of a pod.
func (w *town) check(typ watch.EventType, p *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		delete(w.owners, p.UID)
	} else {
		if before, ok := w.owners[p.UID]; ok && before != owner.UID {
			w.T.Errorf("pod %s changed its owner, after %q", p.Name, w.said)
		}
		w.owners[p.UID] = owner.UID
	}
	delete(w.existing, p.UID)
	if typ != watch.Deleted && owner != nil && p.DeletionTimestamp == nil && !podstate.Finished(p) {
		w.existing[p.UID] = p
	}
	type place struct {
		owner types.UID
		node  string
	}
	daemons, ofJob, available, double := map[place]int{}, map[types.UID]int{}, map[string]int{}, 0
	for _, p := range w.existing {
		switch owner := metav1.GetControllerOf(p); owner.Kind {
		case "DaemonSet":
			if p.Spec.NodeName != "" {
				daemons[place{owner.UID, p.Spec.NodeName}]++
			}
		case "Job":
			ofJob[owner.UID]++
		}
		if podstate.Ready(p) {
			available[p.Labels["app"]]++
		}
	}
	for at, n := range daemons {
		if n > 1 {
			double++
		}
		if n > 2 || n > 1 && w.surge == 0 {
			w.T.Errorf("%d pods of the DaemonSet on %s, after %q", n, at.node, w.said)
		}
	}
	if w.calm && double > w.surge {
		w.T.Errorf("two pods of the DaemonSet on %d nodes, want at most %d, after %q", double, w.surge, w.said)
	}
	for _, n := range ofJob {
		if n > jobParallelism {
			w.T.Errorf("%d active pods of a Job, after %q", n, w.said)
		}
	}
	if w.calm {
		for _, app := range []string{"web", "db", "agent"} {
			if want := w.fewest(app); available[app] < want {
				w.T.Errorf("%d pods of %s are available, want at least %d, after %q", available[app], app, want, w.said)
			}
		}
	}
}

const (
	jobParallelism = 2
	fewestOfWeb    = 2 // minReplicas of the HorizontalPodAutoscaler, which does not scale from 0
	mostOfWeb      = 5
)

// fewest returns how many pods of an app must be available during a rollout.
func (w *town) fewest(app string) int {
	switch app {
	case "web":
		d, _ := apitest.Get[*appsv1.Deployment](w.API, "default", app)
		return int(*d.Spec.Replicas) - int(*d.Spec.Replicas)/4
	case "db":
		s, _ := apitest.Get[*appsv1.StatefulSet](w.API, "default", app)
		return int(*s.Spec.Replicas) - w.unavailable
	}
	if w.surge > 0 {
		return nodesOfTown
	}
	return nodesOfTown - 1
}

func appTemplate(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v0"}}}}
}

// management returns OrderedReady or Parallel, depending on the seed.
func (w *town) management() appsv1.PodManagementPolicyType {
	if w.unavailable == 2 {
		return appsv1.ParallelPodManagement
	}
	return appsv1.OrderedReadyPodManagement
}

func (w *town) rollingSet() appsv1.StatefulSetUpdateStrategy {
	return appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: new(intstr.FromInt(w.unavailable))}}
}

func (w *town) rollingDaemons() appsv1.DaemonSetUpdateStrategy {
	limits := &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt(1)), MaxSurge: new(intstr.FromInt(0))}
	if w.surge > 0 {
		limits = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt(0)),
			MaxSurge: new(intstr.FromInt(w.surge))}
	}
	return appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: limits}
}

// create creates the missing workloads.
func (w *town) create() {
	meta := func(app string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: app} }
	selector := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	scaled := autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	task := appTemplate("cron")
	task.Spec.RestartPolicy = corev1.RestartPolicyNever
	for _, obj := range []client.Object{
		&appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: meta("web"),
			Spec: appsv1.DeploymentSpec{Replicas: new(int32(5)), RevisionHistoryLimit: new(int32(2)), Selector: selector("web"),
				Template: appTemplate("web")}},
		&appsv1.StatefulSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}, ObjectMeta: meta("db"),
			Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), ServiceName: "db", Selector: selector("db"),
				Template: appTemplate("db"), PodManagementPolicy: w.management(), UpdateStrategy: w.rollingSet()}},
		&appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: meta("agent"),
			Spec: appsv1.DaemonSetSpec{Selector: selector("agent"), Template: appTemplate("agent"),
				UpdateStrategy: w.rollingDaemons()}},
		&batchv1.CronJob{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"}, ObjectMeta: meta("cron"),
			Spec: batchv1.CronJobSpec{Schedule: "*/3 * * * *", ConcurrencyPolicy: batchv1.ForbidConcurrent,
				JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: task}}}},
		&autoscalingv2.HorizontalPodAutoscaler{TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v2",
			Kind: "HorizontalPodAutoscaler"}, ObjectMeta: meta("web"),
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: scaled, MinReplicas: new(int32(fewestOfWeb)),
				MaxReplicas: mostOfWeb, Metrics: byCPU()}},
	} {
		if _, err := w.Get(w.T.Context(), client.RefOf(obj)); err != nil {
			w.Create(obj)
		}
	}
}

// say records an action. With disturbs, pods may be unavailable after it.
func (w *town) say(disturbs bool, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, fmt.Sprintf(format, args...))
	w.calm = w.calm && !disturbs
}

// template sets the image of the Deployment, the StatefulSet and the DaemonSet.
func (w *town) template(image string) {
	w.say(false, "image %s", image)
	set := func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Image = image }
	if d, ok := apitest.Get[*appsv1.Deployment](w.API, "default", "web"); ok {
		apitest.Change(w.API, d, "", func(d *appsv1.Deployment) { set(&d.Spec.Template) })
	}
	if s, ok := apitest.Get[*appsv1.StatefulSet](w.API, "default", "db"); ok {
		apitest.Change(w.API, s, "", func(s *appsv1.StatefulSet) { set(&s.Spec.Template) })
	}
	if d, ok := apitest.Get[*appsv1.DaemonSet](w.API, "default", "agent"); ok {
		apitest.Change(w.API, d, "", func(d *appsv1.DaemonSet) { set(&d.Spec.Template) })
	}
}

// act performs one random action.
func (w *town) act() {
	pods := slices.DeleteFunc(apitest.List[*corev1.Pod](w.API, "default"),
		func(p *corev1.Pod) bool { return p.Labels["app"] == "debug" })
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	n := w.rng.IntN(100)
	switch {
	case n < 25:
		w.template(fmt.Sprint("v", w.rng.IntN(5)))
	case n < 40:
		size := int32(w.rng.IntN(7))
		w.say(true, "scale %d", size)
		if d, ok := apitest.Get[*appsv1.Deployment](w.API, "default", "web"); ok {
			apitest.Change(w.API, d, "",
				func(d *appsv1.Deployment) { d.Spec.Replicas, d.Spec.Paused = &size, w.rng.IntN(4) == 0 })
		}
		if s, ok := apitest.Get[*appsv1.StatefulSet](w.API, "default", "db"); ok {
			apitest.Change(w.API, s, "", func(s *appsv1.StatefulSet) { s.Spec.Replicas = &size })
		}
	case n < 55:
		w.job()
	case n < 68 && len(pods) > 0:
		p := pods[w.rng.IntN(len(pods))]
		w.say(true, "kill %s", p.Name)
		w.API.Delete(p, "")
	case n < 76 && len(pods) > 0:
		p := pods[w.rng.IntN(len(pods))]
		w.say(true, "relabel %s", p.Name)
		apitest.Change(w.API, p, "", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "debug"} })
	case n < 80:
		w.lose(fmt.Sprint("n", w.rng.IntN(nodesOfTown)))
	case n < 84:
		w.silence(fmt.Sprint("n", w.rng.IntN(nodesOfTown)))
	case n < 86:
		w.busy()
	case n < 88:
		w.sleepy()
	case n < 91:
		w.say(false, "restart")
		w.stop()
		time.Sleep(time.Duration(w.rng.IntN(5000)) * time.Millisecond)
		w.start()
	case n < 95:
		w.say(false, "lost watches")
		w.link.Cut()
	default:
		w.deleteOne()
	}
}

// job creates a Job, Indexed in every second case.
func (w *town) job() {
	w.jobs++
	w.say(false, "job %d", w.jobs)
	job := &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("task-", w.jobs)},
		Spec: batchv1.JobSpec{Completions: new(int32(4)), Parallelism: new(int32(jobParallelism)),
			BackoffLimit: new(int32(100)), Template: appTemplate("task")}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	if w.jobs%2 == 0 {
		job.Spec.CompletionMode = new(batchv1.IndexedCompletion)
	}
	w.Create(job)
}

// lose deletes a node with its pods, and later adds a node of the same name.
func (w *town) lose(node string) {
	w.say(true, "lose %s", node)
	w.dead(node)
	w.API.Delete(apitest.Node(node), "")
	apitest.Settle(time.Duration(30+w.rng.IntN(60)) * time.Second)
	w.Create(apitest.Node(node))
	w.back(node)
}

// silence stops the reports of a node for a while. The node is tainted and its pods are evicted; they end when the node
// reports again.
func (w *town) silence(node string) {
	w.say(true, "silence of %s", node)
	w.dead(node)
	w.Ready(node, corev1.ConditionUnknown)
	apitest.Settle(time.Duration(w.rng.IntN(600)) * time.Second)
	w.back(node)
}

func (w *town) dead(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[node] = false
}

// back makes a dead node ready: its terminating pods end, its other pods fail.
func (w *town) back(node string) {
	w.Ready(node, corev1.ConditionTrue)
	w.mu.Lock()
	w.nodes[node] = true
	w.mu.Unlock()
	for _, p := range apitest.List[*corev1.Pod](w.API, "default") {
		switch {
		case p.Spec.NodeName != node:
		case p.DeletionTimestamp != nil:
			w.end(w.T.Context(), p)
		default:
			w.phase(w.T.Context(), p, corev1.PodFailed)
		}
	}
}

// deleteOne deletes one of the workloads and recreates it.
func (w *town) deleteOne() {
	policy := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground,
		metav1.DeletePropagationOrphan}[w.rng.IntN(3)]
	i := w.rng.IntN(3)
	w.say(true, "delete %s of %d", policy, i)
	if d, ok := apitest.Get[*appsv1.Deployment](w.API, "default", "web"); ok && i == 0 {
		w.API.Delete(d, policy)
	}
	if s, ok := apitest.Get[*appsv1.StatefulSet](w.API, "default", "db"); ok && i == 1 {
		w.API.Delete(s, policy)
	}
	if d, ok := apitest.Get[*appsv1.DaemonSet](w.API, "default", "agent"); ok && i == 2 {
		w.API.Delete(d, policy)
	}
	apitest.Settle(2 * time.Minute)
	w.create()
}
