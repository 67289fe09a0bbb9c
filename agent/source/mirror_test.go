package source_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/agent/source"
	"monopod/agent/source/static"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/store"
)

// world is an API with the mirror pods of a node, and the pods that run on the node.
type world struct {
	*testing.T
	api   *registry.Registry
	m     *source.Mirrors
	runs  map[types.UID]bool
	again []types.UID // calls of Rewrite
}

// inWorld runs a test in virtual time. Mirrors gets all changes in the API.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		resources := registry.Resources()
		s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
		t.Cleanup(func() { s.Close() })
		w := &world{T: t, api: registry.New(s, resources, registry.Config{}), runs: map[types.UID]bool{}}
		if err := w.api.Bootstrap(t.Context()); err != nil {
			t.Fatal(err)
		}
		metrics, err := follow.NewMetrics(nil)
		if err != nil {
			t.Fatal(err)
		}
		w.m = source.NewMirrors(source.MirrorDeps{
			Client: w.api, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: metrics,
			Runs:    func(uid types.UID, _, _ string) bool { return w.runs[uid] },
			Rewrite: func(_ context.Context, uid types.UID) { w.again = append(w.again, uid) },
		}, "n1")
		w.follow()
		test(w)
	})
}

// follow passes changes in the API to Mirrors.
func (w *world) follow() {
	w.Helper()
	all := client.Selector{Resource: client.Pods}
	_, rev, err := w.api.List(w.Context(), all)
	if err != nil {
		w.Fatal(err)
	}
	events, err := w.api.Watch(w.Context(), all, rev)
	if err != nil {
		w.Fatal(err)
	}
	w.m.SetList(w.Context(), nil)
	go func() {
		for ev := range events {
			if pod, ok := ev.Object.(*corev1.Pod); ok && ev.Type != watch.Bookmark {
				w.m.Changed(w.Context(), pod, ev.Type == watch.Deleted)
			}
		}
	}()
	go w.m.Run(w.Context())
}

func (w *world) create(obj client.Object) {
	w.Helper()
	if _, err := w.api.Create(w.Context(), obj); err != nil {
		w.Fatal(err)
	}
}

func (w *world) node() {
	w.create(&corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
}

// shown returns the mirror pod of p after a minute; nil: none.
func (w *world) shown(p *corev1.Pod) *corev1.Pod {
	w.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	found, err := client.List[*corev1.Pod](w.Context(), w.api, client.Selector{Namespace: p.Namespace})
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range found {
		if uid, ok := static.Mirrored(f); ok && uid == p.UID && f.Name == p.Name {
			return f
		}
	}
	return nil
}

func staticPod(uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "a-n1", Namespace: "default", UID: uid},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "web:1"}}},
	}
}

func TestMirrorIsCreatedOnceNodeExists(t *testing.T) {
	inWorld(t, func(w *world) {
		p := staticPod("1")
		w.runs["1"] = true
		w.m.SetStatic([]*corev1.Pod{p})
		if got := w.shown(p); got != nil {
			t.Errorf("without a node: %v", got)
		}
		w.node()
		if got := w.shown(p); got == nil || metav1.GetControllerOf(got).Name != "n1" {
			t.Errorf("the mirror pod is %v", got)
		}
		if len(w.again) == 0 || w.again[0] != "1" {
			t.Errorf("Rewrite was called for %v, want 1", w.again)
		}
	})
}

func TestMirrorIsDeletedAfterItsPod(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node()
		p := staticPod("1")
		w.runs["1"] = true
		w.m.SetStatic([]*corev1.Pod{p})
		first := w.shown(p)
		w.m.Ended(p) // the pod restarts
		second := w.shown(p)
		if first == nil || second == nil || second.UID == first.UID {
			t.Fatalf("first mirror pod %v, second %v", first, second)
		}
		w.m.SetStatic(nil)
		if got := w.shown(p); got == nil {
			t.Error("the mirror pod was deleted while the static pod terminates")
		}
		w.runs["1"] = false
		w.m.Ended(p)
		if got := w.shown(p); got != nil {
			t.Errorf("the mirror pod exists after the end of the static pod: %v", got)
		}
	})
}

func TestMirrorWithoutPodIsDeleted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node()
		forged := staticPod("x")
		forged.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		w.create(forged)
		if got := w.shown(forged); got != nil {
			t.Errorf("a mirror pod without a static pod exists: %v", got)
		}
	})
}

func TestSetListRemovesMirrorPods(t *testing.T) {
	inWorld(t, func(w *world) {
		plain, shows := staticPod("p"), staticPod("m")
		shows.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "1"}
		if got := w.m.SetList(w.Context(), []*corev1.Pod{plain, shows}); len(got) != 1 || got[0] != plain {
			t.Errorf("SetList returned %v", got)
		}
	})
}

func TestRestoreStatuses(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node()
		p := staticPod("1")
		w.runs["1"] = true
		w.m.SetStatic([]*corev1.Pod{p})
		_, err := client.Update(w.Context(), w.api, w.shown(p), "status", func(m *corev1.Pod) error {
			m.Status.Phase, m.Status.Message = corev1.PodRunning, "as it was"
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		same, edited := staticPod("1"), staticPod("2")
		w.m.RestoreStatuses(w.Context(), []*corev1.Pod{same, edited})
		if same.Status.Message != "as it was" || edited.Status.Message != "" {
			t.Errorf("restored %q, and %q for another UID", same.Status.Message, edited.Status.Message)
		}
	})
}

func TestStaticPod(t *testing.T) {
	inWorld(t, func(w *world) {
		w.runs["1"] = true
		for _, c := range []struct{ annotation, want types.UID }{{"", "m"}, {"1", "1"}, {"2", "m"}} {
			asked := staticPod("m")
			if c.annotation != "" {
				asked.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: string(c.annotation)}
			}
			if got := w.m.StaticPod(asked); got.UID != c.want {
				t.Errorf("annotation %q: %s, want %s", c.annotation, got.UID, c.want)
			}
			if asked.UID != "m" {
				t.Error("StaticPod changed its argument")
			}
		}
	})
}
