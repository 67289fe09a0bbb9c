package policy_test

import (
	"testing"

	"monopod/apiserver/access/rbac/policy"
	"monopod/apiserver/registry"
	"monopod/store"
)

// The cost of Bootstrap at the first start, and at later ones.
func BenchmarkBootstrap(b *testing.B) {
	for _, again := range []bool{false, true} {
		b.Run(map[bool]string{false: "first", true: "again"}[again], func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				resources := registry.Resources()
				s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
				reg := registry.New(s, resources, registry.Config{})
				if err := reg.Bootstrap(b.Context()); err != nil {
					b.Fatal(err)
				}
				if again {
					if err := policy.Bootstrap(b.Context(), reg); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				if err := policy.Bootstrap(b.Context(), reg); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				s.Close()
				b.StartTimer()
			}
		})
	}
}
