package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

// benchService selects the pods whose label app is its name.
func benchService(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name}, ClusterIP: corev1.ClusterIPNone,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

// benchPod is a pod of the Service on the node n.
func benchPod(service string, i int) *corev1.Pod {
	return apitest.Pod("default", fmt.Sprint(service, "-", i), func(p *corev1.Pod) {
		p.Labels, p.Spec.NodeName = map[string]string{"app": service}, "n"
	})
}

// becomeReady writes the status of a ready pod.
func becomeReady(ctx context.Context, c client.Client, p *corev1.Pod, ip string) error {
	_, err := client.Update(ctx, c, p, "status", func(p *corev1.Pod) error {
		p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.Now()}}
		return nil
	})
	return err
}

// slicesFrom watches the EndpointSlices.
func slicesFrom(b *testing.B, ctx context.Context, c client.Client) <-chan watch.Event {
	b.Helper()
	_, from, err := c.List(ctx, client.Selector{Resource: client.EndpointSlices})
	if err != nil {
		b.Fatal(err)
	}
	events, err := c.Watch(ctx, client.Selector{Resource: client.EndpointSlices}, from)
	if err != nil {
		b.Fatal(err)
	}
	return events
}

// BenchmarkEndpointsSettle measures the time from the readiness of the last of 10,000 pods until a watch has seen all
// pods in the slices of 2,000 Services. 16 concurrent writers write the statuses. For comparison, the same run reports
// the time for the same writes without Services.
func BenchmarkEndpointsSettle(b *testing.B) {
	const services, each = 2000, 5
	for b.Loop() {
		alone := readyAll(b, 0, services, each, nil)
		settled := make(chan time.Time, 1)
		both := readyAll(b, services, services, each, settled)
		after := (<-settled).Sub(both.end)
		b.ReportMetric(float64(after.Milliseconds()), "ms-settled-after")
		b.ReportMetric(both.took.Seconds(), "s-ready")
		b.ReportMetric(alone.took.Seconds(), "s-ready-without-services")
		b.ReportMetric(both.cpu.Seconds(), "s-CPU")
		b.ReportMetric(alone.cpu.Seconds(), "s-CPU-without-services")
	}
}

// span is the time at which the last pod became ready, the duration of all writes, and the CPU time of the process
// until all pods were endpoints.
type span struct {
	end       time.Time
	took, cpu time.Duration
}

// cpuTime returns the user and system CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// readyAll creates the Services, creates each pods for every one of names labels, and makes them ready. settled
// receives the time at which all pods are endpoints; nil: readyAll does not wait for that.
func readyAll(b *testing.B, services, names, each int, settled chan<- time.Time) span {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	c := benchCluster(b)
	for i := range services {
		if _, err := c.Create(ctx, benchService(fmt.Sprint("s", i))); err != nil {
			b.Fatal(err)
		}
	}
	pods := make([]*corev1.Pod, 0, names*each)
	for i := range names * each {
		p := benchPod(fmt.Sprint("s", i%names), i)
		if _, err := c.Create(ctx, p.DeepCopy()); err != nil {
			b.Fatal(err)
		}
		pods = append(pods, p)
	}
	var wg sync.WaitGroup
	if settled != nil {
		events := slicesFrom(b, ctx, c)
		wg.Go(func() {
			have, total := map[string]int{}, 0
			for e := range events {
				slice := e.Object.(*discoveryv1.EndpointSlice)
				total += len(slice.Endpoints) - have[slice.Name]
				if have[slice.Name] = len(slice.Endpoints); total == len(pods) {
					settled <- time.Now()
					return
				}
			}
		})
	}
	began, used := time.Now(), cpuTime(b)
	work := make(chan int)
	var writers sync.WaitGroup
	for range 16 {
		writers.Go(func() {
			for i := range work {
				if err := becomeReady(ctx, c, pods[i], fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range pods {
		work <- i
	}
	close(work)
	writers.Wait()
	end := time.Now()
	wg.Wait()
	return span{end, end.Sub(began), cpuTime(b) - used}
}

// BenchmarkServiceLatency measures, for 200 Services one after the other, the time from the status write that makes the
// Service's pod ready until a watch has seen the pod in a slice. For comparison, the same run reports the time until a
// watch has seen a slice that the benchmark writes itself.
func BenchmarkServiceLatency(b *testing.B) {
	b.Run("memory", func(b *testing.B) { serviceLatency(b, benchCluster) })
	b.Run("durable", func(b *testing.B) { serviceLatency(b, durableCluster) })
}

func serviceLatency(b *testing.B, cluster func(*testing.B) client.Client) {
	const services = 200
	for b.Loop() {
		c := cluster(b)
		events := slicesFrom(b, b.Context(), c)
		until := func(done func(*discoveryv1.EndpointSlice) bool) {
			for e := range events {
				if done(e.Object.(*discoveryv1.EndpointSlice)) {
					return
				}
			}
		}
		var latency, limit []time.Duration
		for i := range services + 1 {
			name := fmt.Sprint("s", i)
			p := benchPod(name, i)
			for _, obj := range []client.Object{benchService(name), p.DeepCopy()} {
				if _, err := c.Create(b.Context(), obj); err != nil {
					b.Fatal(err)
				}
			}
			began := time.Now()
			if err := becomeReady(b.Context(), c, p, fmt.Sprint("10.0.0.", i)); err != nil {
				b.Fatal(err)
			}
			until(func(s *discoveryv1.EndpointSlice) bool {
				return s.Labels[discoveryv1.LabelServiceName] == name && len(s.Endpoints) == 1
			})
			latency = append(latency, time.Since(began))

			bare := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bare-" + name},
				AddressType: discoveryv1.AddressTypeIPv4}
			began = time.Now()
			if _, err := c.Create(b.Context(), bare); err != nil {
				b.Fatal(err)
			}
			until(func(s *discoveryv1.EndpointSlice) bool { return s.Name == bare.Name })
			limit = append(limit, time.Since(began))
		}
		latency, limit = latency[1:], limit[1:] // the controllers start during the first round
		for _, m := range []struct {
			name string
			all  []time.Duration
		}{{"", latency}, {"-bare", limit}} {
			slices.Sort(m.all)
			b.ReportMetric(float64(m.all[len(m.all)/2].Microseconds()), "us-p50"+m.name)
			b.ReportMetric(float64(m.all[len(m.all)*99/100].Microseconds()), "us-p99"+m.name)
		}
	}
}
