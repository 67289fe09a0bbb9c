// Package load_test measures what requests and watches cost a server.
package load_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"monopod/testdata/harness"
)

// n is the number of objects that each row creates or changes.
const n = 3000

// BenchmarkLoad measures one row after the other on the same server, with one client that has one connection.
func BenchmarkLoad(b *testing.B) {
	t := startTarget(b)
	for _, c := range []int{1, 16, 64} {
		ns := t.namespace(b, fmt.Sprintf("configmaps-%d", c))
		t.row(b, fmt.Sprintf("ConfigMap-create-c=%d", c), c, n, func(i int) request {
			return request{method: http.MethodPost, path: ns + "/configmaps", body: configMapBody(number(i))}
		})
	}
	pods := t.namespace(b, "pods") + "/pods"
	for i, c := range []int{16, 64} {
		t.row(b, fmt.Sprintf("pod-create-c=%d", c), c, n, func(k int) request {
			return request{method: http.MethodPost, path: pods, body: podBody(number(i*n + k))}
		})
		t.row(b, fmt.Sprintf("LIST-%d-pods", (i+1)*n), 1, 10, func(int) request {
			return request{method: http.MethodGet, path: pods}
		})
	}
	t.row(b, "pod-GET-c=64", 64, 15_000, func(int) request {
		return request{method: http.MethodGet, path: pods + "/" + number(0)}
	})
	t.row(b, "pod-PATCH-status-c=16", 16, n, func(i int) request {
		return request{method: http.MethodPatch, path: pods + "/" + number(i) + "/status",
			body: `{"status":{"message":"changed"}}`}
	})
	for _, watches := range []int{100, 1000} {
		t.watches(b, watches)
	}
	t.row(b, "pod-DELETE-c=16", 16, 2*n, func(i int) request {
		return request{method: http.MethodDelete, path: pods + "/" + number(i) + "?gracePeriodSeconds=0"}
	})
	b.Run("after-it-all", func(b *testing.B) {
		harness.Once(b, func(b *testing.B) {
			b.ReportMetric(float64(harness.ProcNumber(b, t.Cmd.Process.Pid, "smaps_rollup", "Rss:"))/1024, "MB-RSS")
		})
	})
}

// target is a server under load.
type target struct {
	*harness.Server
	url  string
	http *http.Client
}

func startTarget(b *testing.B) *target {
	b.Helper()
	program := harness.Build(b).Monopod(harness.Plain)
	dir, err := os.MkdirTemp("", "mp")
	if err != nil {
		b.Fatal(err)
	}
	s := harness.NewServer(program, dir, "--runtime=fake", "--node-name=node1", "--eviction-hard=memory.available<100Mi")
	stop := sync.OnceFunc(func() {
		s.CleanUp(false)
		os.RemoveAll(dir)
	})
	b.Cleanup(stop)
	b.Cleanup(harness.Interrupted(stop))
	s.Start()
	if err := s.Ready(); err != nil {
		b.Fatalf("%v: %s", err, s.Log)
	}
	clients, url := s.Clients(b, 1)
	return &target{Server: s, url: url, http: clients[0]}
}

// row measures a number of requests by a number of concurrent workers, on a server at rest.
func (t *target) row(b *testing.B, name string, workers, requests int, next func(i int) request) {
	b.Run(name, func(b *testing.B) {
		harness.Once(b, func(b *testing.B) {
			t.rest(b)
			took := make([]time.Duration, requests)
			cpu, from := t.CPU(b), time.Now()
			err := each(workers, requests, func(i int) error {
				sent := time.Now()
				defer func() { took[i] = time.Since(sent) }()
				return t.do(next(i))
			})
			all, used := time.Since(from), t.CPU(b)-cpu
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(requests)/all.Seconds(), "each/s")
			b.ReportMetric(float64(used.Microseconds())/float64(requests), "µs-CPU")
			report(b, took)
		})
	})
}

// rest waits until the server is at rest.
func (t *target) rest(b *testing.B) {
	if err := t.Settled(); err != nil {
		b.Log(err)
	}
}

// report reports the quantiles of durations.
func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	for unit, percent := range map[string]int{"ms-p50": 50, "ms-p99": 99} {
		b.ReportMetric(float64(took[len(took)*percent/100].Microseconds())/1000, unit)
	}
}
