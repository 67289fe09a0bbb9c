package controllers

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/controllers/internal/apitest"
	"monopod/store"
	"monopod/store/bolt"
)

// workloads is a running manager over a bbolt store, with one large node. Its agent makes bound pods ready after start.
type workloads struct {
	client.Client
	b      *testing.B
	writes map[schema.GroupVersionResource]*atomic.Int64
	pods   chan watch.Event // events of pods for the agent, in order
	start  time.Duration    // from binding to ready
}

func newWorkloads(b *testing.B, controllers ...string) *workloads {
	resources := registry.Resources()
	s, err := bolt.Open(filepath.Join(b.TempDir(), "state.db"), store.Config{Kind: registry.Kinds(resources)})
	if err != nil {
		b.Fatal(err)
	}
	r := registry.New(s, resources, registry.Config{})
	w := &workloads{Client: r, b: b, writes: map[schema.GroupVersionResource]*atomic.Int64{},
		pods: make(chan watch.Event, 1<<16)}
	if err := r.Bootstrap(b.Context()); err != nil {
		b.Fatal(err)
	}
	cfg := served()
	if len(controllers) > 0 {
		cfg.Controllers = controllers
	}
	m, err := New(Deps{Client: r}, cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(func() {
		cancel()
		running.Wait()
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	for _, kind := range []schema.GroupVersionResource{client.Pods, client.ReplicaSets, client.Deployments} {
		w.count(ctx, &running, kind)
	}
	for range 64 {
		running.Go(func() { w.agent(ctx) })
	}
	if _, err := r.Create(b.Context(), apitest.Node("n")); err != nil {
		b.Fatal(err)
	}
	_, err = client.Update(b.Context(), r, apitest.Node("n"), "status", func(n *corev1.Node) error {
		n.Status.Allocatable = corev1.ResourceList{"pods": *resource.NewQuantity(1<<20, resource.DecimalSI),
			"cpu": *resource.NewQuantity(1<<20, resource.DecimalSI)}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return w
}

// count counts the writes of a kind, and passes the events of pods to the agent.
func (w *workloads) count(ctx context.Context, running *sync.WaitGroup, kind schema.GroupVersionResource) {
	_, from, err := w.List(ctx, client.Selector{Resource: kind})
	if err != nil {
		w.b.Fatal(err)
	}
	events, err := w.Watch(ctx, client.Selector{Resource: kind}, from)
	if err != nil {
		w.b.Fatal(err)
	}
	n := &atomic.Int64{}
	w.writes[kind] = n
	running.Go(func() {
		for e := range events {
			if e.Type == watch.Error {
				w.b.Errorf("the watch of %s fell behind", kind.Resource)
			}
			n.Add(1)
			if kind == client.Pods {
				w.pods <- e
			}
		}
	})
}

// agent acts as the node's agent: it makes bound pods ready, and completes deletions.
func (w *workloads) agent(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.pods:
			p, ok := e.Object.(*corev1.Pod)
			switch {
			case !ok || e.Type == watch.Deleted || p.Spec.NodeName == "":
			case p.DeletionTimestamp != nil:
				_, _ = w.Delete(ctx, client.RefOf(p),
					metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
			case p.Status.Phase == corev1.PodPending:
				time.Sleep(w.start)
				_, _ = client.Update(ctx, w.Client, p, "status", func(p *corev1.Pod) error {
					p.Status.Phase = corev1.PodRunning
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
						LastTransitionTime: metav1.Now()}}
					return nil
				})
			}
		}
	}
}

// reset sets the counts to 0.
func (w *workloads) reset() {
	for _, n := range w.writes {
		n.Store(0)
	}
}

// settle waits until done returns true and no object was written for 300 ms.
func (w *workloads) settle(done func() bool) {
	w.b.Helper()
	before := int64(-1)
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(300 * time.Millisecond) {
		now := int64(0)
		for _, n := range w.writes {
			now += n.Load()
		}
		if now == before && done() {
			return
		}
		if before = now; time.Now().After(deadline) {
			w.b.Fatal("writes did not stop within 5 minutes")
		}
	}
}

// rolledOut reports whether all replicas of a Deployment are updated and available.
func (w *workloads) rolledOut(name string) bool {
	d, err := client.Get[*appsv1.Deployment](w.b.Context(), w.Client, "default", name)
	if err != nil {
		w.b.Fatal(err)
	}
	s := d.Status
	return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == *d.Spec.Replicas &&
		s.Replicas == s.UpdatedReplicas && s.AvailableReplicas == s.Replicas
}

func benchDeployment(name string, n int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
			}},
	}
}

// remove deletes the pods with these labels, and waits until nothing is written.
func (w *workloads) remove(labels map[string]string) {
	w.b.Helper()
	pods, err := client.List[*corev1.Pod](w.b.Context(), w.Client,
		client.Selector{Labels: klabels.SelectorFromSet(labels)})
	if err != nil {
		w.b.Fatal(err)
	}
	for _, p := range pods {
		if _, err := w.Client.Delete(w.b.Context(), client.RefOf(p),
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil && !apierrors.IsNotFound(err) {
			w.b.Fatal(err)
		}
	}
	w.settle(func() bool { return true })
}

// BenchmarkReplicaSet measures the time in which a ReplicaSet creates 1,000 pods, compared with 1,000 concurrent
// creations on the same store: without other controllers, and while all controllers and the agent handle the pods.
func BenchmarkReplicaSet(b *testing.B) {
	b.Run("alone", func(b *testing.B) { benchReplicaSet(b, newWorkloads(b, "replicaset")) })
	b.Run("all", func(b *testing.B) { benchReplicaSet(b, newWorkloads(b)) })
}

func benchReplicaSet(b *testing.B, w *workloads) {
	const n = 1000
	var bare, set []time.Duration
	for i := 0; b.Loop(); i++ {
		var creating sync.WaitGroup
		began := time.Now()
		for j := range n {
			creating.Go(func() {
				pod := apitest.Pod("default", fmt.Sprintf("bare-%d-%d", i, j),
					func(p *corev1.Pod) { p.Labels = map[string]string{"app": "bare"} })
				if _, err := w.Create(b.Context(), pod); err != nil {
					b.Error(err)
				}
			})
		}
		creating.Wait()
		bare = append(bare, time.Since(began))
		w.settle(func() bool { return true })
		w.remove(map[string]string{"app": "bare"})

		rs := webSet(n)
		rs.Name = fmt.Sprint("set-", i)
		app := map[string]string{"app": rs.Name}
		rs.Spec.Selector, rs.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: app}, app
		_, from, err := w.List(b.Context(), client.Selector{Resource: client.Pods})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		events, err := w.Watch(ctx, client.Selector{Resource: client.Pods}, from)
		if err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		if _, err := w.Create(b.Context(), rs); err != nil {
			b.Fatal(err)
		}
		for created := 0; created < n; {
			if e := <-events; e.Type == watch.Added {
				created++
			}
		}
		set = append(set, time.Since(began))
		cancel()
		w.settle(func() bool { return true })
		if _, err := w.Delete(b.Context(), client.RefOf(rs), metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
		w.remove(app)
	}
	slices.Sort(bare)
	slices.Sort(set)
	b.ReportMetric(float64(bare[len(bare)/2].Milliseconds()), "ms/bare")
	b.ReportMetric(float64(set[len(set)/2].Milliseconds()), "ms/set")
	b.ReportMetric(set[len(set)/2].Seconds()/bare[len(bare)/2].Seconds(), "ratio")
}

// BenchmarkRollout counts the writes of a rolling update of 1,000 pods. Each pod needs five writes: its successor is
// created, bound and ready; the pod is terminating, then deleted.
func BenchmarkRollout(b *testing.B) {
	const n = 1000
	w := newWorkloads(b)
	if _, err := w.Create(b.Context(), benchDeployment("web", n)); err != nil {
		b.Fatal(err)
	}
	w.settle(func() bool { return w.rolledOut("web") })
	w.reset()
	took := time.Duration(0)
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		_, err := client.Update(b.Context(), w.Client, benchDeployment("web", n), "", func(d *appsv1.Deployment) error {
			d.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("image-", i)
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		w.settle(func() bool { return w.rolledOut("web") })
		took += time.Since(began)
	}
	w.report(b.N, 5*n)
	b.ReportMetric(took.Seconds()/float64(b.N), "s/rollout")
}

// report reports the writes of a round by kind, and the ratio of all writes to the needed ones.
func (w *workloads) report(rounds, needed int) {
	all := int64(0)
	for kind, n := range w.writes {
		all += n.Load()
		w.b.ReportMetric(float64(n.Load())/float64(rounds), kind.Resource+"-writes")
	}
	w.b.ReportMetric(float64(all)/float64(rounds*needed), "writes/needed")
}

// BenchmarkDeployments counts the writes of 1,000 Deployments of one pod. Each needs ten writes: the Deployment and its
// three statuses (a ReplicaSet, a pod, an available pod), the ReplicaSet and its two statuses (a pod, a ready pod), the
// pod, its binding and its readiness.
func BenchmarkDeployments(b *testing.B) {
	const n = 1000
	for b.Loop() {
		w := newWorkloads(b)
		w.start = 100 * time.Millisecond
		began := time.Now()
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("web-", i)
		}
		errs := follow.Each(16, names, func(name string) error {
			_, err := w.Create(b.Context(), benchDeployment(name, 1))
			return err
		})
		if len(errs) > 0 {
			b.Fatal(errs)
		}
		w.settle(func() bool { return !slices.ContainsFunc(names, func(name string) bool { return !w.rolledOut(name) }) })
		b.ReportMetric(time.Since(began).Seconds(), "s/settled")
		w.report(1, 10*n)
	}
}
