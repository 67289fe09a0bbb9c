package registry_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

// A client that creates an object of an inert kind gets a warning and an Event; this process gets neither.
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
	driver := func(name string) client.Object {
		return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for _, c := range []struct {
		ctx      context.Context
		obj      client.Object
		warnings string
		events   int
	}{
		{asClient, driver("a"), `CSIDriver "a" is only stored: the node runs no CSI drivers`, 1},
		{registry.DryRun(asClient), driver("b"), `CSIDriver "b" is only stored: the node runs no CSI drivers`, 1},
		{t.Context(), driver("c"), "", 1},
		{asClient, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d"},
			Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}},
			`ReplicaSet "d" is only stored: the controller "replicaset" is switched off by --controllers`, 2},
		{asClient, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}}, "", 2},
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

// docs/api.md lists the inert kinds with the reasons, the README lists their names.
func TestDocsListStoredOnlyKinds(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| kind | only stored, since |\n|---|---|\n")
	var kinds []string
	for _, res := range registry.Resources() {
		if res.Inert != "" {
			fmt.Fprintf(&table, "| %s | %s |\n", res.Kind, res.Inert)
			kinds = append(kinds, res.Kind)
		}
	}
	api, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(api), "\n"+table.String()+"\n") {
		t.Errorf("docs/api.md lacks this table:\n%s", table.String())
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(kinds)
	listed := regexp.MustCompile(`Only stored so far, and nothing acts on them: ([^.]*)\.`).FindStringSubmatch(
		string(readme))
	if want := strings.Join(kinds, ", "); listed == nil || strings.Join(strings.Fields(listed[1]), " ") != want {
		t.Errorf("README.md does not say: Only stored so far, and nothing acts on them: %s.", want)
	}
}
