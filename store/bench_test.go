package store_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/store"
	"monopod/store/storetest"
)

// pod is a typical pod of about 1.5 KB of JSON.
func pod(name string) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "0b1f2f3c-0000-4000-8000-000000000000",
			Labels: map[string]string{"app": "web", "tier": "front"}, Annotations: map[string]string{"note": strings.Repeat("n", 200)}},
		Spec: corev1.PodSpec{NodeName: "node1", ServiceAccountName: "default", RestartPolicy: corev1.RestartPolicyAlways},
	}
	for i := range 2 {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("c%d", i), Image: "registry.example/team/web:1.2.3", ImagePullPolicy: corev1.PullIfNotPresent,
			Env:                    []corev1.EnvVar{{Name: "COLOR", Value: "green"}, {Name: "LEVEL", Value: strings.Repeat("v", 80)}},
			Ports:                  []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		})
	}
	return p
}

func podKey(i int) store.Key {
	return store.Key{Resource: "pods", Namespace: "default", Name: fmt.Sprintf("pod-%05d", i)}
}

// filled is a store of n pods.
func filled(b *testing.B, n int) *store.Memory {
	b.Helper()
	s := store.NewMemory(store.Config{Kind: func(string) (store.Kind, bool) {
		return store.Kind{New: func() store.Object { return &corev1.Pod{} }}, true
	}}, nil, nil, 0)
	b.Cleanup(func() { s.Close() })
	for i := range n {
		k := podKey(i)
		if _, err := s.Update(b.Context(), k, func(store.Object) (store.Object, error) { return pod(k.Name), nil }); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse + m.StackInuse)
}

// BenchmarkList lists 10,000 pods by label.
func BenchmarkList(b *testing.B) {
	s := filled(b, 10000)
	sel := store.Selector{Resource: "pods", Match: func(o store.Object) bool { return o.GetLabels()["app"] == "web" }}
	for b.Loop() {
		if got, _, err := s.List(b.Context(), sel); err != nil || len(got) != 10000 {
			b.Fatal(len(got), err)
		}
	}
}

// BenchmarkGet gets one of 10,000 pods.
func BenchmarkGet(b *testing.B) {
	s := filled(b, 10000)
	for b.Loop() {
		if _, err := s.Get(b.Context(), podKey(5000)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHeapPerPod measures the memory of a stored pod, without history.
func BenchmarkHeapPerPod(b *testing.B) {
	before := heap()
	s := filled(b, 10000)
	e, err := s.Get(b.Context(), podKey(0))
	if err != nil {
		b.Fatal(err)
	}
	after := heap()
	for b.Loop() {
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric((after-before)/10000, "B/pod")
	b.ReportMetric(float64(len(e.JSON())), "B/JSON")
	runtime.KeepAlive(s)
}

// BenchmarkWatchers measures 1,000 watches of one namespace at 50 updates a second, for four seconds: from the
// end of the write to the event.
func BenchmarkWatchers(b *testing.B) {
	const watchers, updates = 1000, 200
	s := filled(b, 1)
	before := heap()
	ctx, cancel := context.WithCancel(b.Context())
	sent := make([]time.Time, updates)
	late := make([]time.Duration, watchers*updates)
	var wg sync.WaitGroup
	for w := range watchers {
		ch, err := storetest.Watch(ctx, s, store.Selector{Resource: "pods", Namespace: "default"}, s.Revision())
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			for i := range updates {
				<-ch
				late[w*updates+i] = time.Since(sent[i])
			}
		})
	}
	quiet := (heap() - before) / watchers
	for i := range updates {
		sent[i] = time.Now()
		if _, err := s.Update(b.Context(), podKey(0), func(cur store.Object) (store.Object, error) {
			next := cur.DeepCopyObject().(*corev1.Pod)
			next.Annotations["n"] = fmt.Sprint(i)
			return next, nil
		}); err != nil {
			b.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	wg.Wait()
	cancel()
	for b.Loop() {
	}
	slices.Sort(late)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "ms/p99")
	b.ReportMetric(quiet, "B/watch")
}
