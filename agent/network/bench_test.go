package network

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/network/dns"
	"monopod/agent/network/endpoints"
	"monopod/agent/network/networktest"
	"monopod/agent/network/service"
	"monopod/apiserver/kit/client"
)

// BenchmarkServices reports the memory of the network for each of 1,000 Services with two or ten endpoints: the view,
// the tables of the kernel and the zone of the DNS server, without the objects in the store.
func BenchmarkServices(b *testing.B) {
	for _, endpoints := range []int{2, 10} {
		b.Run(fmt.Sprint(endpoints), func(b *testing.B) {
			networktest.Isolated(b, func(netns.NsHandle) { measure(b, endpoints) })
		})
	}
}

func measure(b *testing.B, perService int) {
	const n = 1000
	var services, slices []client.Object
	for i := range n {
		meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("service-%d", i)}
		ip := fmt.Sprintf("10.96.%d.%d", 1+i/200, 1+i%200)
		services = append(services,
			&corev1.Service{ObjectMeta: meta,
				Spec: corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{{Port: 80}}}})
		meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Port: new(int32(8080))}}}
		for e := range perService {
			slice.Endpoints = append(slice.Endpoints,
				discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 100+i/200, i%200, 1+e)}, NodeName: new("here")})
		}
		slices = append(slices, slice)
	}
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		before := heap()
		seen := endpoints.New("here")
		zone := dns.NewZone("cluster.local", seen, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
		proxy := service.New(
			service.Config{Table: "monopod-bench", Node: service.Node{Name: "here"},
				Families: []corev1.IPFamily{corev1.IPv4Protocol}, Log: zap.NewNop()})
		for i, objects := range [][]client.Object{services, slices} {
			for _, obj := range objects {
				if _, err := seen.Sources()[i].Keys(b.Context(), nil, obj); err != nil {
					b.Error(err)
				}
			}
		}
		for key := range seen.Take() {
			svc, eps := seen.Get(key)
			proxy.Set(key, svc, eps)
			zone.Changed(key)
		}
		if err := proxy.Sync(); err != nil {
			b.Error(err)
		}
		b.ReportMetric((heap()-before)/n, "B/Service")
		runtime.KeepAlive(zone)
		runtime.KeepAlive(seen)
		proxy.Close()
		_ = service.Remove("monopod-bench")
	}
}
