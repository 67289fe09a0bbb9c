package probe_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"

	"monopod/agent/pod/probe"
)

// perSecond is the rate of probes of 200 pods with one probe every 10 s each.
const perSecond = 20

// processor returns the CPU time of this process. It includes the probed HTTP, TCP and gRPC servers, so it is too high.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// handlers returns one handler of each type, for servers on loopback.
func handlers(b *testing.B) map[string]*corev1.ProbeHandler {
	b.Helper()
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	plain, secure := httptest.NewServer(ok), httptest.NewTLSServer(ok)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	rpc := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(rpc, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(l) }()
	b.Cleanup(func() { plain.Close(); secure.Close(); rpc.Stop(); <-served })
	port := func(l net.Listener) intstr.IntOrString { return intstr.FromInt(l.Addr().(*net.TCPAddr).Port) }
	return map[string]*corev1.ProbeHandler{
		"exec":  {Exec: &corev1.ExecAction{Command: []string{"ok"}}},
		"http":  {HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: port(plain.Listener)}},
		"https": {HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: port(secure.Listener), Scheme: corev1.URISchemeHTTPS}},
		"tcp":   {TCPSocket: &corev1.TCPSocketAction{Port: port(plain.Listener)}},
		"grpc":  {GRPC: &corev1.GRPCAction{Port: port(l).IntVal}},
	}
}

// BenchmarkProbe measures one probe of each type.
func BenchmarkProbe(b *testing.B) {
	all := handlers(b)
	caller := probe.Caller{Exec: &container{}}
	for _, kind := range []string{"exec", "http", "https", "tcp", "grpc"} {
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			before := processor(b)
			for b.Loop() {
				if _, err := caller.Do(b.Context(), all[kind], probe.Target{ContainerID: "id", Host: "127.0.0.1"},
					time.Second); err != nil {
					b.Fatal(err)
				}
			}
			each := (processor(b) - before).Seconds() / float64(b.N)
			b.ReportMetric(each*1e6, "cpu-us/probe")
			b.ReportMetric(each*perSecond*100, "%core/200pods")
		})
	}
}

// BenchmarkManagers measures 200 pods with one exec, HTTP or TCP probe each, for five seconds with a period of one
// second, a tenth of the default.
func BenchmarkManagers(b *testing.B) {
	all := handlers(b)
	for b.Loop() {
		before := processor(b)
		managers := make([]*probe.Manager, 200)
		for i := range managers {
			managers[i] = &probe.Manager{Caller: probe.Caller{Exec: &container{}}, Clock: clock.RealClock{}}
			one := target(&corev1.Container{LivenessProbe: &corev1.Probe{
				ProbeHandler: *all[[]string{"exec", "http", "tcp"}[i%3]], PeriodSeconds: 1, TimeoutSeconds: 1,
				FailureThreshold: 1}})
			one.Host, one.Adopted = "127.0.0.1", true // probes of adopted containers are spread over the period
			managers[i].Add(b.Context(), one)
		}
		time.Sleep(5 * time.Second)
		for _, m := range managers {
			if kind, failed := m.Failed("id"); failed {
				b.Errorf("%s probe failed", kind)
			}
			m.Stop()
		}
		b.ReportMetric((processor(b)-before).Seconds()/5*100/10, "%core/200pods")
	}
}
