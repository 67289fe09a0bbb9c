package allocate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestUsageFollows checks that the counts after any changes equal those of a new usage.
func TestUsageFollows(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	made := func() *corev1.Service {
		n := random.IntN(20)
		spec := corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort,
			ClusterIPs:          []string{fmt.Sprintf("10.96.0.%d", n), "fd00::1"},
			Ports:               []corev1.ServicePort{{NodePort: int32(30000 + n)}, {NodePort: int32(30000 + n)}},
			HealthCheckNodePort: int32(31000 + n)}
		return &corev1.Service{Spec: spec}
	}
	u := newUsage()
	var services []*corev1.Service
	for range 1000 {
		services = slices.Clone(services)
		for range random.IntN(3) {
			switch at := random.IntN(len(services) + 1); {
			case at == len(services) || random.IntN(3) == 0:
				services = slices.Insert(services, at, made())
			case random.IntN(2) == 0:
				services[at] = made()
			default:
				services = slices.Delete(services, at, at+1)
			}
		}
		u.update(services)
		want := newUsage()
		want.update(services)
		if !maps.Equal(u.ips, want.ips) || !maps.Equal(u.ports, want.ports) {
			t.Fatalf("counted %v %v, want %v %v", u.ips, u.ports, want.ips, want.ports)
		}
	}
	if u.update(nil); len(u.ips)+len(u.ports) > 0 {
		t.Errorf("without Services, %v and %v are used", u.ips, u.ports)
	}
}
