package registry_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

func configMap(name, color string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"color": color}},
	}
}

// Follow passes objects that start and stop matching, and one that another has replaced while the reader was slow.
func TestFollow(t *testing.T) {
	t.Parallel()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources), History: 2}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	r := registry.New(s, resources, registry.Config{})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	create := func(name, color string) {
		if _, err := r.Create(t.Context(), configMap(name, color)); err != nil {
			t.Error(err)
		}
	}
	paint := func(name, color string) {
		if _, err := client.Update(t.Context(), r, configMap(name, ""), "", func(c *corev1.ConfigMap) error {
			c.Labels = map[string]string{"color": color}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	remove := func(name string) {
		if _, err := r.Delete(t.Context(), client.Ref{Resource: client.ConfigMaps, Namespace: "default", Name: name}, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	create("a", "red")
	create("b", "blue")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	steps := []func(){
		func() { paint("b", "red") },
		func() { paint("b", "blue") },
		func() { remove("a"); create("a", "red"); create("c", "blue"); create("d", "blue"); create("e", "red") },
		cancel,
	}
	var got []string
	name := func(obj client.Object) string {
		if obj == nil {
			return "-"
		}
		return obj.GetName()
	}
	var replaced client.Object
	next := func(string) {
		step := steps[0]
		steps = steps[1:]
		step()
	}
	run, err := r.Follow(ctx, client.Selector{Resource: client.ConfigMaps, Labels: labels.SelectorFromSet(labels.Set{"color": "red"})}, client.Reader{
		List: func(objs []client.Object, revision string) {
			for _, obj := range objs {
				got = append(got, "listed "+obj.GetName())
				replaced = obj
			}
			next(revision)
		},
		Change: func(old, new client.Object) {
			got = append(got, name(old)+"→"+name(new))
			if name(old) == "a" && old.GetUID() != replaced.GetUID() || name(new) == "a" && new.GetUID() == replaced.GetUID() {
				t.Errorf("%v→%v, listed %s", old, new, replaced.GetUID())
			}
		},
		Reached: next,
	})
	if err == nil {
		err = run()
	}
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"listed a", "-→b", "b→-", "a→-", "-→a", "-→e"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A store that does not know earlier states is watched.
func TestFollowNeedsEarlierStates(t *testing.T) {
	t.Parallel()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	r := registry.New(struct{ store.Store }{s}, resources, registry.Config{})
	if _, err := r.Follow(t.Context(), client.Selector{Resource: client.Pods}, client.Reader{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}
