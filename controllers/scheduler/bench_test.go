package scheduler

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/controllers/internal/apitest"
	"monopod/store"
	"monopod/store/bolt"
)

// benchAPI returns a registry over a bbolt file.
func benchAPI(b *testing.B) client.Client {
	resources := registry.Resources()
	s, err := bolt.Open(filepath.Join(b.TempDir(), "state.db"), store.Config{Kind: registry.Kinds(resources)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	r := registry.New(s, resources, registry.Config{})
	if err := r.Bootstrap(b.Context()); err != nil {
		b.Fatal(err)
	}
	return r
}

// each calls f for 0 to n-1 from a number of goroutines, and returns the duration.
func each(b *testing.B, n, goroutines int, f func(i int) error) time.Duration {
	next := make(chan int)
	var wg sync.WaitGroup
	from := time.Now()
	for range goroutines {
		wg.Go(func() {
			for i := range next {
				if err := f(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return time.Since(from)
}

// benchNodes creates ready nodes, 20 in each zone.
func benchNodes(b *testing.B, api client.Client, n int) {
	each(b, n, 16, func(i int) error {
		node := apitest.Node(fmt.Sprintf("n%04d", i))
		node.Labels = map[string]string{corev1.LabelHostname: node.Name, corev1.LabelTopologyZone: fmt.Sprint("z", i/20)}
		if _, err := api.Create(b.Context(), node); err != nil {
			return err
		}
		_, err := client.Update(b.Context(), api, apitest.Node(node.Name), "status", func(n *corev1.Node) error {
			n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("100000"),
				"memory": resource.MustParse("100Ti"), "pods": resource.MustParse("100000")}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			return nil
		})
		return err
	})
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

type noEvents struct{}

func (noEvents) Eventf(client.Object, string, string, string, ...any) {}

// benchBinds measures the binding of pods that exist before the scheduler starts. For comparison ("limit") it measures
// the same number of concurrent bindings without a scheduler.
func benchBinds(b *testing.B, nodes, pods int, change func(i int, p *corev1.Pod)) {
	for b.Loop() {
		api := benchAPI(b)
		benchNodes(b, api, nodes)
		create := func(prefix, scheduler string) {
			each(b, pods, 64, func(i int) error {
				p := apitest.Pod("default", fmt.Sprintf("%s%05d", prefix, i), wants("cpu", "10m", "memory", "16Mi"))
				p.Spec.SchedulerName = scheduler
				change(i, p)
				_, err := api.Create(b.Context(), p)
				return err
			})
		}
		create("p", "")
		create("limit", "other")
		_, from, err := api.List(b.Context(), client.Selector{Resource: client.Pods})
		if err != nil {
			b.Fatal(err)
		}
		events, err := api.Watch(b.Context(), client.Selector{Resource: client.Pods}, from)
		if err != nil {
			b.Fatal(err)
		}
		m, err := follow.NewMetrics(prometheus.NewRegistry())
		if err != nil {
			b.Fatal(err)
		}
		c, err := New(follow.Deps{Client: api, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: m}, noEvents{}, Config{})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		began, cpu := time.Now(), cpuTime(b)
		go func() { done <- c.Run(ctx) }()
		for bound := 0; bound < pods; bound++ {
			e := <-events
			if p, ok := e.Object.(*corev1.Pod); !ok || p.Spec.NodeName == "" {
				b.Fatalf("unexpected event %v", e.Type)
			}
		}
		took, ours := time.Since(began), cpuTime(b)-cpu
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		cpu = cpuTime(b)
		limit := each(b, pods, c.cfg.Workers*batch, func(i int) error {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("limit%05d", i)}}
			_, err := client.Update(b.Context(), api, p, "binding", func(p *corev1.Pod) error {
				p.Spec.NodeName = "n0000"
				return nil
			})
			return err
		})
		b.ReportMetric(float64(pods)/took.Seconds(), "binds/s")
		b.ReportMetric(float64(pods)/limit.Seconds(), "limit/s")
		b.ReportMetric(float64(ours.Microseconds())/float64(pods), "cpu-µs/bind")
		b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(pods), "cpu-µs/limit")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBind measures the binding of 5,000 pods to one node.
func BenchmarkBind(b *testing.B) { benchBinds(b, 1, 5000, func(int, *corev1.Pod) {}) }

// BenchmarkBindMany measures the binding of 5,000 pods to 1,000 nodes: plain pods, and pods of 50 applications with
// topology spread constraints over zones and anti-affinity on a node.
func BenchmarkBindMany(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchBinds(b, 1000, 5000, func(int, *corev1.Pod) {}) })
	b.Run("spread", func(b *testing.B) {
		benchBinds(b, 1000, 5000, func(i int, p *corev1.Pod) {
			p.Labels = map[string]string{"app": fmt.Sprint("app", i%50)}
			by := &metav1.LabelSelector{MatchLabels: p.Labels}
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 5,
				TopologyKey:       corev1.LabelTopologyZone,
				WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: by}}
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: corev1.LabelHostname, LabelSelector: by}}}}
		})
	})
}
