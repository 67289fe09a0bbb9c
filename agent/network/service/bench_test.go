package service

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod/apiserver/kit/follow"
)

// input is a Service and its EndpointSlices.
type input struct {
	key follow.Key
	svc *corev1.Service
	eps []*discoveryv1.EndpointSlice
}

// inputs returns n Services with ten endpoints each, whose addresses begin at shift.
func inputs(n, shift int) []input {
	var all []input
	for i := range n {
		ip := fmt.Sprintf("10.96.%d.%d", 1+i/200, 1+i%200)
		in := input{key: follow.Key{Name: fmt.Sprint(i)}, svc: service(func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeClusterIP
			s.Spec.ExternalIPs = nil
			s.Spec.Ports = []corev1.ServicePort{{Name: "tcp", Port: 80}}
			s.Spec.ClusterIP, s.Spec.ClusterIPs = ip, []string{ip}
		})}
		in.eps = endpointSlices(nil)
		for e := range 10 {
			in.eps = append(in.eps, endpointSlices([]string{fmt.Sprintf("10.%d.%d.%d", 100+i/200, i%200, 1+shift+e)})...)
		}
		all = append(all, in)
	}
	return all
}

func (w *world) load(all []input) time.Duration {
	began := time.Now()
	for _, in := range all {
		w.proxy.Set(in.key, in.svc, in.eps)
	}
	w.sync()
	return time.Since(began)
}

// BenchmarkChange changes all endpoints of 1,000 Services with ten endpoints each, or one endpoint. It reports medians.
func BenchmarkChange(b *testing.B) {
	machine(b, func(w *world) {
		heap := func() float64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return float64(m.HeapAlloc)
		}
		sets := [][]input{inputs(1000, 0), inputs(1000, 100)}
		fewer := sets[0][0]
		fewer.eps = fewer.eps[:9]
		before := heap()
		w.load(sets[0])
		grown := heap() - before
		var all, one []float64
		milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		for i := 1; b.Loop(); i++ {
			all = append(all, milliseconds(w.load(sets[1])), milliseconds(w.load(sets[0])))
			one = append(one, milliseconds(w.load([]input{fewer})), milliseconds(w.load(sets[0][:1])))
		}
		median := func(of []float64) float64 { slices.Sort(of); return of[len(of)/2] }
		b.ReportMetric(grown/1000, "B/Service")
		b.ReportMetric(median(all), "ms/all")
		b.ReportMetric(median(one), "ms/endpoint")
		w.proxy = w.newProxy()
		b.ReportMetric(milliseconds(w.load(sets[0])), "ms/restart")
	})
}
