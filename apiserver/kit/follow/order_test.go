package follow_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/store"
)

// holding is an API that holds back the events of pods until the gate opens.
type holding struct {
	client.Ordered
	gate chan struct{}
}

func (h *holding) Watch(ctx context.Context, sel client.Selector, rv string) (<-chan watch.Event, error) {
	events, err := h.Ordered.Watch(ctx, sel, rv)
	if err != nil || sel.Resource != client.Pods {
		return events, err
	}
	return delayed(ctx, events, func() bool {
		select {
		case <-h.gate:
			return true
		case <-ctx.Done():
			return false
		}
	}), nil
}

// delayed passes each event on after wait has returned true.
func delayed(ctx context.Context, events <-chan watch.Event, wait func() bool) <-chan watch.Event {
	out := make(chan watch.Event)
	go func() {
		defer close(out)
		for e := range events {
			if !wait() {
				return
			}
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// cluster is an API in memory.
func cluster(t *testing.T) *holding {
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	r := registry.New(s, resources, registry.Config{})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &holding{Ordered: r, gate: make(chan struct{})}
}

func create(t *testing.T, c client.Client, obj client.Object) {
	t.Helper()
	if _, err := c.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

func orphan(name string) *corev1.Pod {
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

func owner(name string) *appsv1.ReplicaSet {
	labels := map[string]string{"app": "web"}
	return &appsv1.ReplicaSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: orphan("").Spec}}}
}

// late is the number that a loop sends if a source may lag.
const late = -1

// counting is a loop over ReplicaSets that sends to seen with each Reconcile how many pods its second source knows.
func counting(t *testing.T, c client.Client, pods fields.Selector, seen chan<- int64) {
	reconciling(t, c, pods, func(ctx context.Context, known int64) {
		if !follow.Current(ctx) {
			known = late
		}
		seen <- known
	})
}

// reconciling is a loop over ReplicaSets whose Reconcile gets the number of pods that the second source knows.
func reconciling(t *testing.T, c client.Client, pods fields.Selector,
	reconcile func(ctx context.Context, known int64)) {
	metrics, err := follow.NewMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	var known atomic.Int64
	l := follow.New(follow.Deps{Client: c, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: metrics},
		follow.Config[follow.Key]{
			Name: "test",
			Sources: []follow.Source[follow.Key]{
				{Selector: client.Selector{Resource: client.ReplicaSets}, Keys: follow.Plain(follow.OnAny)},
				{Selector: client.Selector{Resource: client.Pods, Fields: pods},
					Keys: follow.Plain(func(old, next client.Object) []follow.Key {
						switch {
						case old == nil:
							known.Add(1)
						case next == nil:
							known.Add(-1)
						}
						return nil
					})},
			},
			Reconcile: func(ctx context.Context, _ follow.Key) (time.Duration, error) {
				reconcile(ctx, known.Load())
				return 0, nil
			},
		})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
}

// TestEveryKindIsSeenInOrder: a ReplicaSet that was created after a pod is not reconciled before the loop has seen the
// pod, even if the watch of pods lags.
func TestEveryKindIsSeenInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, seen := cluster(t), make(chan int64, 10)
		counting(t, c, nil, seen)
		create(t, c, orphan("orphan"))
		create(t, c, owner("web"))
		if synctest.Wait(); len(seen) > 0 {
			t.Fatalf("reconciled with %d pods seen, before the pod's event came", <-seen)
		}
		close(c.gate)
		synctest.Wait()
		if len(seen) != 1 {
			t.Fatalf("reconciled %d times, want once", len(seen))
		}
		if n := <-seen; n != 1 {
			t.Errorf("%d pods were seen, want the one that came first", n)
		}
	})
}

// TestUnselectedChangesDoNotBlock: a source does not wait for events that its selector excludes.
func TestUnselectedChangesDoNotBlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, seen := cluster(t), make(chan int64, 10)
		close(c.gate)
		counting(t, c, fields.OneTermEqualSelector("metadata.name", "other"), seen)
		for _, name := range []string{"a", "b", "c"} {
			create(t, c, orphan(name))
			create(t, c, owner(name))
			if synctest.Wait(); len(seen) != 1 || <-seen != 0 {
				t.Fatal("not reconciled at once")
			}
		}
	})
}

// TestLaggingSourceIsNotAwaitedForever: Reconcile waits ten seconds for a source, and then no longer for later
// keys.
func TestLaggingSourceIsNotAwaitedForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, seen := cluster(t), make(chan int64, 10)
		counting(t, c, nil, seen)
		create(t, c, orphan("orphan"))
		create(t, c, owner("a"))
		began := time.Now()
		if n := <-seen; n != late || time.Since(began) != 10*time.Second {
			t.Errorf("%d pods seen after %v", n, time.Since(began))
		}
		create(t, c, owner("b"))
		if synctest.Wait(); len(seen) != 1 {
			t.Error("the next key waits, too")
		}
		if n := <-seen; n != late {
			t.Errorf("%d pods seen, want the mark of a lagging source", n)
		}
		c.gate <- struct{}{} // the source advances, and Reconcile waits for it again
		synctest.Wait()
		create(t, c, orphan("second"))
		create(t, c, owner("c"))
		if synctest.Wait(); len(seen) != 0 {
			t.Error("Reconcile does not wait for the source again")
		}
		c.gate <- struct{}{}
		if n := <-seen; n != 2 {
			t.Errorf("%d pods seen, want 2", n)
		}
	})
}

// An optional source is followed from FollowOptional on: before it nothing waits for the source, and the Reconcile of the
// key that calls it has seen the source's objects.
func TestOptionalSource(t *testing.T) {
	t.Parallel()
	t.Run("ordered", func(t *testing.T) { optionalSource(t, func(c client.Ordered) client.Client { return c }) })
	t.Run("unordered, as with etcd", func(t *testing.T) {
		optionalSource(t, func(c client.Ordered) client.Client { return &unordered{Client: c} })
	})
}

func optionalSource(t *testing.T, with func(client.Ordered) client.Client) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t)
		watches := &watched{Ordered: c.Ordered}
		_, ordered := with(watches).(client.Ordered)
		create(t, c, orphan("p"))
		metrics, err := follow.NewMetrics(nil)
		if err != nil {
			t.Fatal(err)
		}
		var pods atomic.Int64
		seen := map[string]int64{}
		var l *follow.Loop[follow.Key]
		l = follow.New(follow.Deps{Client: with(watches), Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: metrics},
			follow.Config[follow.Key]{Name: "test", Sources: []follow.Source[follow.Key]{
				{Selector: client.Selector{Resource: client.ReplicaSets},
					Keys: follow.Plain(func(old, new client.Object) []follow.Key {
						if new != nil && new.GetName() == "uses-pods" {
							l.FollowOptional()
						}
						return follow.OnAny(old, new)
					})},
				{Selector: client.Selector{Resource: client.Pods}, Optional: true,
					Keys: follow.Plain(func(_, _ client.Object) []follow.Key { pods.Add(1); return nil })},
			}, Reconcile: func(ctx context.Context, key follow.Key) (time.Duration, error) {
				if ordered && !follow.Current(ctx) {
					t.Errorf("%s: not current", key.Name)
				}
				seen[key.Name] = pods.Load()
				return 0, nil
			}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		create(t, c, owner("web"))
		if synctest.Wait(); seen["web"] != 0 || len(seen) != 1 || watches.pods.Load() != 0 {
			t.Errorf("reconciled with %v pods, and %d watches of pods", seen, watches.pods.Load())
		}
		create(t, c, owner("uses-pods"))
		time.Sleep(time.Minute)
		if synctest.Wait(); seen["uses-pods"] != 1 {
			t.Errorf("reconciled with %v pods, want 1", seen)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// watched counts the watches of pods.
type watched struct {
	client.Ordered
	pods atomic.Int64
}

// List takes a while for pods.
func (w *watched) List(ctx context.Context, sel client.Selector) ([]client.Object, string, error) {
	if sel.Resource == client.Pods {
		time.Sleep(time.Second)
	}
	return w.Ordered.List(ctx, sel)
}

func (w *watched) Watch(ctx context.Context, sel client.Selector, rv string) (<-chan watch.Event, error) {
	if sel.Resource == client.Pods {
		w.pods.Add(1)
	}
	return w.Ordered.Watch(ctx, sel, rv)
}
