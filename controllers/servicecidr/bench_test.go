package servicecidr

import (
	"fmt"
	"net/netip"
	"testing"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/store"
)

// BenchmarkServices measures the creation of 1,000 Services one after the other; with the controller, until all
// IPAddresses exist.
func BenchmarkServices(b *testing.B) {
	for _, runs := range []bool{false, true} {
		b.Run(fmt.Sprintf("controller=%t", runs), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				resources := registry.Resources()
				s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
				r := registry.New(s, resources, registry.Config{})
				if err := r.Bootstrap(b.Context()); err != nil {
					b.Fatal(err)
				}
				metrics, err := follow.NewMetrics(nil)
				if err != nil {
					b.Fatal(err)
				}
				done := make(chan error, 1)
				if runs {
					c := New(follow.Deps{Client: r, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: metrics}, nil,
						[]netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")})
					go func() { done <- c.Run(b.Context()) }()
				}
				b.StartTimer()
				for i := range 1000 {
					if _, err := r.Create(b.Context(), service(fmt.Sprint("s", i), "")); err != nil {
						b.Fatal(err)
					}
				}
				for runs {
					all, _, err := r.List(b.Context(), client.Selector{Resource: client.IPAddresses})
					if err != nil {
						b.Fatal(err)
					}
					if len(all) == 1000 {
						break
					}
				}
				b.StopTimer()
				s.Close()
			}
		})
	}
}
