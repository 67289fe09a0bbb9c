package controllers

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/registry"
	"monopod/controllers/internal/apitest"
	"monopod/store"
)

// BenchmarkMemoryOfPods measures what all controllers keep of each pod, beyond what the store keeps of it: the heap
// with 10,000 pods of one ReplicaSet, with and without the controllers.
func BenchmarkMemoryOfPods(b *testing.B) {
	for b.Loop() {
		perPod, goroutines := memoryOfPods(b, 10_000)
		b.ReportMetric(perPod, "B/pod")
		b.ReportMetric(float64(goroutines), "goroutines")
	}
}

func memoryOfPods(b *testing.B, pods int) (perPod float64, goroutines int) {
	s := store.NewMemory(store.Config{Kind: registry.Kinds(registry.Resources())}, nil, nil, 0)
	defer s.Close()
	c := benchRegistry(b, s)
	set, err := c.Create(b.Context(), webSet(int32(pods)))
	if err != nil {
		b.Fatal(err)
	}
	owner := metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	for i := range pods {
		p := apitest.Pod("default", fmt.Sprint("p", i))
		p.Spec.NodeName, p.OwnerReferences, p.Labels = "n", []metav1.OwnerReference{*owner}, webSet(1).Spec.Template.Labels
		if _, err := c.Create(b.Context(), p); err != nil {
			b.Fatal(err)
		}
	}
	s.Forget(s.Revision())
	before, idle := inUse()
	stop := benchManager(b, c)
	defer stop()
	for counted := int32(0); counted < int32(pods); time.Sleep(100 * time.Millisecond) {
		rs, err := client.Get[*appsv1.ReplicaSet](b.Context(), c, "default", set.GetName())
		if err != nil {
			b.Fatal(err)
		}
		counted = rs.Status.Replicas
	}
	time.Sleep(2 * time.Second) // until the queues are empty
	s.Forget(s.Revision())
	after, running := inUse()
	return float64(after-before) / float64(pods), running - idle
}

// inUse returns the bytes of the heap that are in use after garbage collection, and the number of goroutines.
func inUse() (heap int64, goroutines int) {
	for range 3 {
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc), runtime.NumGoroutine()
}
