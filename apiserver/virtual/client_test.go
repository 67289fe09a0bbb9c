package virtual_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/metrics"
	"monopod/apiserver/registry"
	"monopod/apiserver/virtual"
	"monopod/store"
)

// A controller reads metrics.k8s.io as clients over HTTP do, and other groups from the registry.
func TestMeasured(t *testing.T) {
	t.Parallel()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	r := registry.New(s, resources, registry.Config{})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	pod := func(namespace, name string) *metrics.PodMetrics {
		return &metrics.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{"name": name}}}
	}
	broken := errors.New("broken")
	var fails error
	c := virtual.Measured(r, func(context.Context) ([]*metrics.NodeMetrics, []*metrics.PodMetrics, error) {
		return []*metrics.NodeMetrics{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}},
			[]*metrics.PodMetrics{pod("a", "x"), pod("a", "y"), pod("b", "x")}, fails
	})
	count := func(sel client.Selector) int {
		objs, _, err := c.List(t.Context(), sel)
		if err != nil {
			t.Fatal(err)
		}
		return len(objs)
	}
	for _, row := range []struct {
		sel  client.Selector
		want int
	}{
		{client.Selector{Resource: metrics.Pods()}, 3},
		{client.Selector{Resource: metrics.Pods(), Namespace: "a"}, 2},
		{client.Selector{Resource: metrics.Pods(), Namespace: "a", Labels: labels.SelectorFromSet(labels.Set{"name": "x"})},
			1},
		{client.Selector{Resource: metrics.Nodes()}, 1},
		{client.Selector{Resource: client.Pods}, 0},
	} {
		if got := count(row.sel); got != row.want {
			t.Errorf("%+v: %d objects, want %d", row.sel, got, row.want)
		}
	}
	if obj, err := c.Get(t.Context(), client.Ref{Resource: metrics.Pods(), Namespace: "b", Name: "x"}); err != nil ||
		obj.GetNamespace() != "b" {
		t.Errorf("got %v, %v", obj, err)
	}
	if _, err := c.Get(t.Context(),
		client.Ref{Resource: metrics.Pods(), Namespace: "b", Name: "z"}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if _, err := client.Get[*corev1.Namespace](t.Context(), c, "", "default"); err != nil {
		t.Error(err)
	}
	fails = broken
	if _, _, err := c.List(t.Context(), client.Selector{Resource: metrics.Pods()}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v", err)
	}
}
