package registry_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/store"
)

// One entry of a resource defines a subresource and its update.
func TestSubresourceIsOneEntry(t *testing.T) {
	t.Parallel()
	asKind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	make := func() kind.Object { return new(corev1.ConfigMap) }
	stamp, count := kind.Posted("stamp", asKind, make), kind.Posted("count", asKind, make)
	stamp.Merge = func(next, cur kind.Object, _ metav1.Time) error {
		cur.(*corev1.ConfigMap).DeepCopyInto(next.(*corev1.ConfigMap))
		next.(*corev1.ConfigMap).Data = map[string]string{"stamped": "yes"}
		return nil
	}
	count.Update = func(ctx context.Context, in kind.Registry, ref client.Ref, change client.Change) (kind.Object, error) {
		if !in.Serves(client.ConfigMaps) || in.Serves(client.Pods.GroupVersion().WithResource("pots")) {
			t.Error("Serves does not report what the registry serves")
		}
		cur, err := in.Get(ctx, ref.Sub(""))
		if err != nil {
			return nil, err
		}
		asked, err := change(&corev1.ConfigMap{})
		if err != nil {
			return nil, err
		}
		return asked, in.Admit(ctx, asked, cur)
	}
	resources := registry.Resources()
	for i := range resources {
		if resources[i].GVR == client.ConfigMaps {
			resources[i].Subresources = []kind.Subresource{stamp, count, {Name: "plain", Part: true}}
		}
	}
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	defer s.Close()
	r := registry.New(s, resources, registry.Config{})
	ref := client.Ref{Resource: client.ConfigMaps, Namespace: "default", Name: "a"}
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	give := func(data string) client.Change {
		return func(cur client.Object) (client.Object, error) {
			next := cur.DeepCopyObject().(*corev1.ConfigMap)
			next.Data = map[string]string{"given": data}
			return next, nil
		}
	}
	if obj, err := r.Update(t.Context(), ref.Sub("count"), give("1")); err != nil ||
		obj.(*corev1.ConfigMap).Data["given"] != "1" {
		t.Errorf("count: %v, %v", obj, err)
	}
	if obj, err := r.Get(t.Context(), ref); err != nil || obj.(*corev1.ConfigMap).Data != nil {
		t.Errorf("a POST to a subresource that stores nothing was stored: %v, %v", obj, err)
	}
	if obj, err := r.Update(t.Context(), ref.Sub("stamp"), give("2")); err != nil ||
		obj.(*corev1.ConfigMap).Data["stamped"] != "yes" {
		t.Errorf("stamp: %v, %v", obj, err)
	}
	if obj, err := r.Update(t.Context(), ref.Sub("plain"), give("3")); err != nil ||
		obj.(*corev1.ConfigMap).Data["given"] != "3" {
		t.Errorf("plain: %v, %v", obj, err)
	}
	if _, err := r.Update(t.Context(), ref.Sub("scale"), give("4")); !apierrors.IsNotFound(err) {
		t.Errorf("a subresource that is not served: %v", err)
	}
	if _, err := r.Get(t.Context(), ref.Sub("scale")); !apierrors.IsNotFound(err) {
		t.Errorf("a subresource that is not served: %v", err)
	}
}

// All requests except watches and these have a deadline.
func TestStreams(t *testing.T) {
	t.Parallel()
	var streams []string
	for _, r := range registry.Resources() {
		for _, sub := range r.Subresources {
			if sub.Stream {
				streams = append(streams, r.GVR.Resource+"/"+sub.Name)
			}
		}
	}
	slices.Sort(streams)
	want := []string{"nodes/proxy", "pods/attach", "pods/exec", "pods/log", "pods/portforward", "pods/proxy",
		"services/proxy"}
	if !slices.Equal(streams, want) {
		t.Errorf("streams: %v, want %v", streams, want)
	}
}
