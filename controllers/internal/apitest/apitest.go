// Package apitest serves the API from memory for the controllers' tests.
package apitest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/store"
)

// API is a client for one test. A failed call ends the test.
type API struct {
	client.Client
	Store    *store.Memory
	Registry *prometheus.Registry
	Events   Events
	T        *testing.T

	metrics *follow.Metrics // of the last controller
}

// New returns a cluster with its initial namespaces; it closes when the test ends.
func New(t *testing.T) *API {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() {
		if err := s.Verify(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	r := registry.New(s, resources, registry.Config{})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &API{Client: r, Store: s, Registry: prometheus.NewRegistry(), T: t}
}

// Kinds returns the served kinds.
func Kinds() client.Kinds {
	kinds := registry.Served(registry.Resources())
	return func() ([]client.Kind, <-chan struct{}) { return kinds, nil }
}

// Unwatched returns the served kinds, one of which cannot be watched, like a kind of an aggregated API server.
func Unwatched(resource schema.GroupVersionResource) client.Kinds {
	kinds := Kinds().Now()
	kinds[slices.IndexFunc(kinds, func(k client.Kind) bool { return k.Resource == resource })].Unwatched = true
	return func() ([]client.Kind, <-chan struct{}) { return kinds, nil }
}

// Deps returns the dependencies of a controller under test.
func (a *API) Deps() follow.Deps {
	m, err := follow.NewMetrics(a.Registry)
	if err != nil {
		a.T.Fatal(err)
	}
	a.metrics = m
	return follow.Deps{Client: a.Client, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: m}
}

// Run runs a controller until the test ends. By then it must have settled: its own changes do not wake it again.
func (a *API) Run(c follow.Controller) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	metrics := a.metrics
	a.T.Cleanup(func() {
		Settle(time.Second)
		if names := metrics.BusyQueues(); len(names) > 0 {
			a.T.Errorf("does not settle: %v", names)
		}
		cancel()
		if err := <-done; err != nil {
			a.T.Error(err)
		}
	})
	synctest.Wait()
}

// Restarting runs a controller until the test ends. The returned function stops it and starts a new one, like a restart
// of the process.
func (a *API) Restarting(start func() follow.Controller) (restart func()) {
	var stop func()
	restart = func() {
		if stop != nil {
			stop()
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- start().Run(ctx) }()
		stop = func() {
			cancel()
			if err := <-done; err != nil {
				a.T.Error(err)
			}
		}
	}
	restart()
	a.T.Cleanup(func() { stop() })
	return restart
}

// Seeds runs a test in virtual time for each seed below n.
func Seeds(t *testing.T, n uint64, test func(t *testing.T, seed uint64)) {
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, seed) })
		})
	}
}

// Clock is a wall clock that can be set. Setting it does not move its timers.
type Clock struct {
	clock.WithTicker
	by    *atomic.Int64
	jumps chan struct{}
}

// Now implements clock.Clock.
func (c Clock) Now() time.Time { return c.WithTicker.Now().Add(time.Duration(c.by.Load())) }

// Since implements clock.Clock.
func (c Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Settable gives deps a clock that the test can set.
func (a *API) Settable(deps *follow.Deps) Clock {
	c := Clock{deps.Clock, new(atomic.Int64), make(chan struct{})}
	deps.Clock, deps.Jumps = c, &follow.Jumps{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { deps.Jumps.Run(ctx, c.jumps) })
	a.T.Cleanup(func() { cancel(); running.Wait() })
	return c
}

// Set sets the clock, as a suspend of the machine does.
func (c Clock) Set(by time.Duration) {
	c.by.Add(int64(by))
	c.jumps <- struct{}{}
	Settle(time.Second)
}

// Must returns the controller, or ends the test with the error.
func Must[C follow.Controller](c C, err error) C {
	if err != nil {
		panic(err)
	}
	return c
}

// Settle advances time until everything that is due has run.
func Settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Create stores objects.
func (a *API) Create(objs ...client.Object) {
	a.T.Helper()
	for _, obj := range objs {
		if _, err := a.Client.Create(a.T.Context(), obj); err != nil {
			a.T.Fatal(err)
		}
	}
}

// Delete deletes an object; policy may be empty.
func (a *API) Delete(obj client.Object, policy metav1.DeletionPropagation) {
	a.T.Helper()
	opts := metav1.DeleteOptions{}
	if policy != "" {
		opts.PropagationPolicy = &policy
	}
	if _, err := a.Client.Delete(a.T.Context(), client.RefOf(obj), opts); err != nil {
		a.T.Fatal(err)
	}
}

// List returns all objects of a type in a namespace; empty means all.
func List[T client.Object](a *API, namespace string) []T {
	a.T.Helper()
	out, err := client.List[T](a.T.Context(), a.Client, client.Selector{Namespace: namespace})
	if err != nil {
		a.T.Fatal(err)
	}
	return out
}

// Get returns an object, or nil if it does not exist.
func Get[T client.Object](a *API, namespace, name string) (T, bool) {
	out, err := client.Get[T](a.T.Context(), a.Client, namespace, name)
	return out, err == nil
}

// Existing returns an object that must exist.
func Existing[T client.Object](a *API, namespace, name string) T {
	a.T.Helper()
	out, err := client.Get[T](a.T.Context(), a.Client, namespace, name)
	if err != nil {
		a.T.Fatal(err)
	}
	return out
}

// EndPod deletes a pod without grace period, as its node does once its containers have ended.
func (a *API) EndPod(pod *corev1.Pod) {
	a.T.Helper()
	if _, err := a.Client.Delete(a.T.Context(), client.RefOf(pod),
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		a.T.Fatal(err)
	}
}

// EndPods ends all terminating pods of a namespace.
func (a *API) EndPods(namespace string) {
	a.T.Helper()
	for _, p := range List[*corev1.Pod](a, namespace) {
		if p.DeletionTimestamp != nil {
			a.EndPod(p)
		}
	}
	Settle(time.Second)
}

// Change updates an object, or one of its subresources.
func Change[T client.Object](a *API, obj T, sub string, change func(T)) {
	a.T.Helper()
	if _, err := client.Update(a.T.Context(), a.Client, obj, sub, func(o T) error { change(o); return nil }); err != nil {
		a.T.Fatal(err)
	}
}

// Phase sets a pod's phase and whether it is ready.
func (a *API) Phase(pod *corev1.Pod, phase corev1.PodPhase, ready bool) {
	a.T.Helper()
	Change(a, pod, "status", func(p *corev1.Pod) {
		p.Status.Phase = phase
		status := corev1.ConditionFalse
		if ready {
			status = corev1.ConditionTrue
		}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}}
	})
}

// Pod returns a minimal pod.
func Pod(namespace, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// Node returns a node with 4 CPUs, 8 Gi and 110 pods, which is not ready before Ready.
func Node(name string) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

// Ready writes a node's status as the agent does.
func (a *API) Ready(name string, status corev1.ConditionStatus) {
	a.T.Helper()
	Change(a, Node(name), "status", func(n *corev1.Node) {
		n.Status.Allocatable = corev1.ResourceList{
			"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110"),
		}
		n.Status.Capacity = n.Status.Allocatable
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status,
			LastHeartbeatTime: metav1.Now()}}
	})
}

// Events collects a controller's events.
type Events struct{ all chan string }

// Eventf implements record.Eventer.
func (e *Events) Eventf(_ client.Object, _, reason, _ string, _ ...any) {
	if e.all != nil {
		e.all <- reason
	}
}

// Watch starts counting events; Count returns them.
func (e *Events) Watch() { e.all = make(chan string, 10000) }

// Count returns the number of events by reason, and resets it.
func (e *Events) Count() map[string]int {
	out := map[string]int{}
	for len(e.all) > 0 {
		out[<-e.all]++
	}
	return out
}

// Faulty fails creations of pods while On is set.
type Faulty struct {
	client.Client
	On func() bool
}

// ErrFault is Faulty's error.
var ErrFault = errors.New("injected fault")

// Create implements client.Client.
func (f *Faulty) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	if _, ok := obj.(*corev1.Pod); ok && f.On() {
		return nil, ErrFault
	}
	return f.Client.Create(ctx, obj)
}

// Lagging delays the watch events of one resource.
type Lagging struct {
	client.Client
	Resource schema.GroupVersionResource
	By       time.Duration
	// Ordered: the client knows the newest change of each resource, as the registry does. Otherwise the watches of
	// different kinds are not ordered, as over HTTP.
	Ordered bool
}

var _ client.Ordered = Lagging{}

// Newest implements client.Ordered.
func (l Lagging) Newest(resource schema.GroupVersionResource) (int64, bool) {
	if ordered, ok := l.Client.(client.Ordered); ok && l.Ordered {
		return ordered.Newest(resource)
	}
	return 0, false
}

// Watch implements client.Client.
func (l Lagging) Watch(ctx context.Context, sel client.Selector, rv string) (<-chan watch.Event, error) {
	events, err := l.Client.Watch(ctx, sel, rv)
	if err != nil || sel.Resource != l.Resource {
		return events, err
	}
	out := make(chan watch.Event)
	go func() {
		defer close(out)
		for e := range events {
			time.Sleep(l.By)
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// Listing counts the calls that list pods.
type Listing struct {
	client.Ordered
	Lists *atomic.Int64
}

// List implements client.Client.
func (l Listing) List(ctx context.Context, sel client.Selector) ([]client.Object, string, error) {
	if sel.Resource == client.Pods {
		l.Lists.Add(1)
	}
	return l.Ordered.List(ctx, sel)
}

// Listed returns deps with a client that counts the lists of pods. The test fails if there are more than the
// controller's source needs: a controller should read only its own pods, regardless of the number of pods in a
// namespace.
func (a *API) Listed(deps follow.Deps) (_ follow.Deps, check func()) {
	lists := new(atomic.Int64)
	deps.Client = Listing{deps.Client.(client.Ordered), lists}
	return deps, func() {
		a.T.Helper()
		if n := lists.Load() - 1; n > 0 {
			a.T.Errorf("%d lists of pods", n)
		}
	}
}

// Value returns the value of a counter.
func Value(c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return m.Counter.GetValue()
}

// Counters returns the non-zero counters of a controller, a line each, without the common prefix and without the
// counters that begin with except.
func (a *API) Counters(prefix, except string) string {
	a.T.Helper()
	families, err := a.Registry.Gather()
	if err != nil {
		a.T.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), prefix)
		if !ok || except != "" && strings.HasPrefix(name, except) {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetCounter().GetValue() == 0 {
				continue
			}
			line := name
			for _, l := range m.GetLabel() {
				line += " " + l.GetValue()
			}
			lines = append(lines, fmt.Sprint(line, "=", m.GetCounter().GetValue()))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
