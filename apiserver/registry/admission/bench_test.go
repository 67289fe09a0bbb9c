package admission_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

// BenchmarkQuota creates a pod in a namespace with 110 others, the maximum of a node, with and without a quota.
func BenchmarkQuota(b *testing.B) {
	for name, hard := range map[string]string{"none": "", "pods": `{hard: {pods: 1M}}`,
		"cpu": `{hard: {pods: 1M, requests.cpu: 1M, limits.memory: 1Ti}}`} {
		b.Run(name, func(b *testing.B) {
			resources := registry.Resources()
			s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
			defer s.Close()
			r := registry.New(s, resources, registry.Config{})
			create := func(ctx context.Context, obj client.Object) {
				if _, err := r.Create(ctx, obj); err != nil {
					b.Fatal(err)
				}
			}
			create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}})
			create(b.Context(), account("default"))
			for i := range 110 {
				create(b.Context(), podOf(b, fmt.Sprint("p", i), `{requests: {cpu: 1m}, limits: {memory: 1Mi}}`))
			}
			if hard != "" {
				create(b.Context(), quotaOf(b, "q", hard))
			}
			pod := podOf(b, "x", `{requests: {cpu: 1m}, limits: {memory: 1Mi}}`)
			for b.Loop() {
				create(registry.DryRun(b.Context()), pod.DeepCopy())
			}
		})
	}
}
