package registry_test

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

// A client that creates an object whose controller is off gets a warning and an Event; this process gets neither.
func TestStoredOnlyKindsWarn(t *testing.T) {
	t.Parallel()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	r := registry.New(s, resources, registry.Config{Off: func(name string) bool { return name == "replicaset" }})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	var heard []string
	asClient := registry.WithWarnings(t.Context(), func(text string) { heard = append(heard, text) })
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	set := func(name string) client.Object {
		return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}}
	}
	const why = `is only stored: the controller "replicaset" is switched off by --controllers`
	for _, c := range []struct {
		ctx      context.Context
		obj      client.Object
		warnings string
		events   int
	}{
		{asClient, set("a"), `ReplicaSet "a" ` + why, 1},
		{registry.DryRun(asClient), set("b"), `ReplicaSet "b" ` + why, 1},
		{t.Context(), set("c"), "", 1},
		{asClient, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}}, "", 1},
	} {
		heard = nil
		if _, err := r.Create(c.ctx, c.obj); err != nil {
			t.Fatal(err)
		}
		if warnings := strings.Join(heard, "\n"); !strings.HasPrefix(warnings, c.warnings) ||
			(warnings == "") != (c.warnings == "") {
			t.Errorf("%T %s: warnings %q", c.obj, c.obj.GetName(), warnings)
		}
		events, err := client.List[*corev1.Event](t.Context(), r, client.Selector{Namespace: "default"})
		if err != nil || len(events) != c.events {
			t.Errorf("%T %s: %d events, %v", c.obj, c.obj.GetName(), len(events), err)
		}
		for _, e := range events {
			if e.Reason != "OnlyStored" || e.Type != corev1.EventTypeWarning || e.InvolvedObject.Kind == "" ||
				!strings.HasPrefix(e.Message, "Only stored: the ") {
				t.Errorf("%+v", e)
			}
		}
	}
}
