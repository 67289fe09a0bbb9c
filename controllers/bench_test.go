package controllers

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/controllers/internal/apitest"
	"monopod/store"
	"monopod/store/bolt"
)

// benchCluster runs all controllers over a registry in memory with one large node.
func benchCluster(b *testing.B) client.Client {
	return benchClusterOver(b, store.NewMemory(store.Config{Kind: registry.Kinds(registry.Resources())}, nil, nil, 0))
}

// durableCluster runs all controllers over a registry on a bbolt file, with one large node.
func durableCluster(b *testing.B) client.Client {
	s, err := bolt.Open(filepath.Join(b.TempDir(), "state.db"), store.Config{Kind: registry.Kinds(registry.Resources())})
	if err != nil {
		b.Fatal(err)
	}
	return benchClusterOver(b, s)
}

func benchClusterOver(b *testing.B, s store.Store) client.Client {
	r := benchRegistry(b, s)
	stop := benchManager(b, r)
	b.Cleanup(func() {
		stop()
		s.Close()
	})
	return r
}

// benchRegistry is a registry over s with one large node.
func benchRegistry(b *testing.B, s store.Store) *registry.Registry {
	r := registry.New(s, registry.Resources(), registry.Config{})
	if err := r.Bootstrap(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err := r.Create(b.Context(), apitest.Node("n")); err != nil {
		b.Fatal(err)
	}
	_, err := client.Update(b.Context(), r, apitest.Node("n"), "status", func(n *corev1.Node) error {
		n.Status.Allocatable = corev1.ResourceList{"pods": *resource.NewQuantity(1<<20, resource.DecimalSI),
			"cpu": *resource.NewQuantity(1<<20, resource.DecimalSI)}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// benchManager runs all controllers until stop is called.
func benchManager(b *testing.B, c client.Client) (stop func()) {
	m, err := New(Deps{Client: c}, served())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkCreateToBound measures one pod from its creation to its binding.
func BenchmarkCreateToBound(b *testing.B) {
	c := benchCluster(b)
	_, from, err := c.List(b.Context(), client.Selector{Resource: client.Pods})
	if err != nil {
		b.Fatal(err)
	}
	events, err := c.Watch(b.Context(), client.Selector{Resource: client.Pods}, from)
	if err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		i++
		if _, err := c.Create(b.Context(), apitest.Pod("default", fmt.Sprint("p", i))); err != nil {
			b.Fatal(err)
		}
		for e := range events {
			if e.Object.(*corev1.Pod).Spec.NodeName != "" {
				break
			}
		}
	}
}

// BenchmarkTenThousandPods measures 20 ReplicaSets from creation to 500 bound pods each.
func BenchmarkTenThousandPods(b *testing.B) {
	for b.Loop() {
		c := benchCluster(b)
		for i := range 20 {
			rs := webSet(500)
			rs.Name = fmt.Sprint("set-", i)
			rs.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": rs.Name}}
			rs.Spec.Template.Labels = map[string]string{"app": rs.Name}
			if _, err := c.Create(b.Context(), rs); err != nil {
				b.Fatal(err)
			}
		}
		for bound := 0; bound < 10000; time.Sleep(10 * time.Millisecond) {
			pods, err := client.List[*corev1.Pod](b.Context(), c, client.Selector{})
			if err != nil {
				b.Fatal(err)
			}
			bound = 0
			for _, p := range pods {
				if p.Spec.NodeName != "" {
					bound++
				}
			}
		}
	}
}
