package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"monopod/testdata/abuse/hostile"
	"monopod/testdata/harness"
)

// atOnce is the number of concurrent hostile requests.
const atOnce = 66

// BenchmarkHostile lets one user send hostile requests of every kind concurrently, while another user reads a ConfigMap
// in a loop. Each round has its own server. The benchmark reports the peak memory of a server, the duration of the
// longest attack, and the latency of the reads, compared with the same reads on an idle server.
func BenchmarkHostile(b *testing.B) {
	var quiet, busy []time.Duration
	var longest time.Duration
	var memory float64
	for b.Loop() {
		v := startVictim(b)
		quiet = append(quiet, v.read(b, time.After(2*time.Second))...)
		done, from := make(chan time.Time), time.Now()
		go func() {
			v.attack(b)
			close(done)
		}()
		busy = append(busy, v.read(b, done)...)
		longest = max(longest, time.Since(from))
		memory = max(memory, v.memory(b))
		v.stop()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(memory, "MB-RSS-peak")
	b.ReportMetric(longest.Seconds(), "s/attack")
	b.ReportMetric(p99(busy), "ms-GET-p99")
	b.ReportMetric(p99(quiet), "ms-GET-p99-at-rest")
}

// victim is a server with an attacker and a reader.
type victim struct {
	server           *server
	pid              int
	attacker, reader user
	stop             func()
}

func startVictim(b *testing.B) *victim {
	b.Helper()
	programs := harness.Build(b)
	dir, err := programs.NewFolder()
	if err != nil {
		b.Fatal(err)
	}
	s := harness.NewServer(programs.Monopod(harness.Plain), dir, "--node-name", "node1", "--runtime=fake")
	stop := sync.OnceFunc(func() {
		s.CleanUp(false)
		os.RemoveAll(dir)
	})
	b.Cleanup(stop)
	s.Start()
	if err := s.Ready(); err != nil {
		b.Fatal(err)
	}
	v := &victim{pid: s.Cmd.Process.Pid, stop: stop}
	if v.server, err = open(dir); err != nil {
		b.Fatal(err)
	}
	users, err := v.server.prepare(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, u := range users {
		switch u.name {
		case "editor":
			v.attacker = u
		case "viewer":
			v.reader = u
		}
	}
	return v
}

// attack sends hostile requests concurrently, and returns when all are answered. The attacker has the permissions for
// all requests.
func (v *victim) attack(b *testing.B) {
	b.Helper()
	requests := hostile.Requests(namespace)
	var group sync.WaitGroup
	for n := range atOnce {
		r := requests[n%len(requests)]
		group.Go(func() {
			code, data, err := v.server.do(context.Background(), v.attacker, r.Method, r.Path, r.ContentType, []byte(r.Body))
			if err != nil || code >= http.StatusInternalServerError && code != http.StatusGatewayTimeout ||
				code == http.StatusForbidden || code == http.StatusNotFound {
				b.Errorf("%s: %d %.200s, %v", r.Name, code, data, err)
			}
		})
	}
	group.Wait()
}

// read reads a ConfigMap at least once, until done, and returns the durations.
func (v *victim) read(b *testing.B, done <-chan time.Time) (took []time.Duration) {
	b.Helper()
	for {
		from := time.Now()
		code, data, err := v.server.do(b.Context(), v.reader, http.MethodGet, nsPath+"/configmaps/kube-root-ca.crt", "", nil)
		if err != nil || code != http.StatusOK {
			b.Fatalf("%d %.200s, %v", code, data, err)
		}
		took = append(took, time.Since(from))
		select {
		case <-done:
			return took
		case <-time.After(time.Millisecond): // a pause, because the reader is not a second attacker
		}
	}
}

// memory returns the peak RSS of the server, in MB.
func (v *victim) memory(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.pid))
	if err != nil {
		b.Fatal(err)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	kb, err := strconv.ParseFloat(strings.Fields(peak)[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return kb * 1024 / 1e6
}

// p99 returns the 99th percentile in milliseconds.
func p99(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)*99/100].Microseconds()) / 1000
}
