package store_test

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/store"
	"monopod/store/storetest"
)

// anything serves every resource.
func anything(string) (store.Kind, bool) { return store.Kind{}, true }

// replace writes the object of fresh with annotation n, so that it differs from the stored one.
func replace(t *testing.T, s *store.Memory, key store.Key, n int, fresh func() store.Object) {
	t.Helper()
	_, err := s.Update(t.Context(), key, func(store.Object) (store.Object, error) {
		obj := fresh()
		obj.SetName(key.Name)
		obj.SetAnnotations(map[string]string{"n": strconv.Itoa(n)})
		return obj, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// live returns the size of the live objects on the heap.
func live() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // frees the objects of sync.Pools, too
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// The histories of all resources together use about as much memory as their limit, for any objects.
func TestHistoriesHoldLittleMemory(t *testing.T) {
	pod := func() *corev1.Pod {
		container := corev1.Container{Name: "c", Image: "registry.example.com/shop/web:1",
			TerminationMessagePath: "/dev/termination-log",
			Env:                    []corev1.EnvVar{{Name: "COLOR", Value: "blue"}},
			Ports:                  []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolTCP}}}
		return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", "pod-template-hash": "5f6d8"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{container, container}, NodeName: "node",
				Tolerations: make([]corev1.Toleration, 2)}}
	}
	fields := `{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},` +
		`"f:image":{},"f:name":{}}}}}`
	for name, fresh := range map[string]func() store.Object{
		"a text": func() store.Object {
			return &corev1.ConfigMap{Data: map[string]string{"k": strings.Repeat("x", 100_000)}}
		},
		"small":  func() store.Object { return &corev1.ConfigMap{Data: map[string]string{"k": "v"}} },
		"a pod":  func() store.Object { return pod() },
		"status": func() store.Object { p := pod(); p.Status.Conditions = make([]corev1.PodCondition, 4); return p },
		"managed fields": func() store.Object {
			p := pod()
			for i := range 3 {
				p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: fmt.Sprint("manager-", i),
					FieldsV1: metav1.NewFieldsV1(strings.Clone(fields))})
			}
			return p
		},
		"empty values": func() store.Object {
			return &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: make(
				[]networkingv1.NetworkPolicyIngressRule, 5000)}}
		},
		"tolerations": func() store.Object { p := pod(); p.Spec.Tolerations = make([]corev1.Toleration, 2000); return p },
	} {
		t.Run(name, func(t *testing.T) {
			const most = 4 << 20
			s := store.NewMemory(store.Config{Kind: anything, HistoryTotal: most, History: 1 << 20}, nil, nil, 0)
			defer s.Close()
			keys := make([]store.Key, 4)
			for i := range keys {
				keys[i] = store.Key{Resource: fmt.Sprint("kind", i), Name: "a"}
			}
			before := live()
			for n := 0; !full(t, s, keys); n++ {
				for _, k := range keys {
					replace(t, s, k, n, fresh)
				}
			}
			held := live() - before
			t.Logf("hold %d KB", held>>10)
			if held < most/3 || held > 3*most {
				t.Errorf("the histories use %d KB, the limit is %d KB", held>>10, most>>10)
			}
		})
	}
}

// full reports whether the first event of each of the resources has left the history.
func full(t *testing.T, s *store.Memory, keys []store.Key) bool {
	t.Helper()
	for _, k := range keys {
		if _, err := s.Watch(t.Context(), store.Selector{Resource: k.Resource}, 4); !errors.Is(err, store.ErrExpired) {
			return false
		}
	}
	return true
}

// Resources that change often do not shorten the history of those that change rarely, and keep their newest event,
// however large it is.
func TestRareChangesKeepTheirHistory(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(store.Config{Kind: anything, HistoryTotal: 100_000}, nil, nil, 0)
	defer s.Close()
	seldom := store.Key{Resource: "nodes", Name: "a"}
	fresh := func(bytes int) func() store.Object {
		return func() store.Object {
			return &corev1.ConfigMap{Data: map[string]string{"k": strings.Repeat("x", bytes)}}
		}
	}
	replace(t, s, seldom, 0, fresh(10))
	first := s.Revision()
	replace(t, s, seldom, 1, fresh(10))
	for n := range 100 {
		for _, resource := range []string{"pods", "events"} {
			replace(t, s, store.Key{Resource: resource, Name: "a"}, n, fresh(20_000))
		}
	}
	last := s.Revision()
	replace(t, s, store.Key{Resource: "pods", Name: "a"}, 100, fresh(200_000))
	replace(t, s, store.Key{Resource: "pods", Name: "a"}, 101, fresh(200_000))
	for _, c := range []struct {
		resource string
		rev      int64
		want     error
	}{{"nodes", first, nil}, {"pods", first, store.ErrExpired}, {"pods", last, store.ErrExpired},
		{"pods", last + 1, nil}} {
		ch, err := storetest.Watch(t.Context(), s, store.Selector{Resource: c.resource}, c.rev)
		if !errors.Is(err, c.want) {
			t.Errorf("%s after %d: %v, want %v", c.resource, c.rev, err, c.want)
		}
		if err == nil {
			if ev := <-ch; ev.Lagged() || ev.Rev <= c.rev {
				t.Errorf("%s after %d: read %d", c.resource, c.rev, ev.Rev)
			}
		}
	}
}
