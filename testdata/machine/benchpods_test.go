package machine_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"monopod/testdata/harness"
)

// events watches the pods until the benchmark ends.
func (s *server) events(b *testing.B) <-chan podEvent {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://x"+podPath+"?watch=1", nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := s.HTTP().Do(req)
	if err != nil {
		b.Fatal(err)
	}
	out := make(chan podEvent, 1024)
	go func() {
		defer resp.Body.Close()
		for dec := json.NewDecoder(bufio.NewReader(resp.Body)); ; {
			var ev podEvent
			if dec.Decode(&ev) != nil {
				return
			}
			out <- ev
		}
	}()
	return out
}

type podEvent struct {
	Type   string
	Object corev1.Pod
}

// untilEvents reads events until n pods match, and returns the time since from.
func untilEvents(b *testing.B, events <-chan podEvent, from time.Time, n int, fits func(podEvent) bool) time.Duration {
	b.Helper()
	for seen := map[string]bool{}; len(seen) < n; {
		select {
		case ev := <-events:
			if fits(ev) {
				seen[ev.Object.Name] = true
			}
		case <-time.After(30 * time.Second):
			b.Fatalf("received %d of %d events", len(seen), n)
		}
	}
	return time.Since(from)
}

// settle is the time for a program to set its signal handler, and for the machine to become idle.
const settle = 200 * time.Millisecond

// BenchmarkPodLife measures the start and the deletion of concurrent pods, until the last one is Running or deleted.
func BenchmarkPodLife(b *testing.B) {
	harness.NeedsContainerd(b)
	for _, pods := range []int{1, 20} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			s, _ := launch(b, "--runtime=containerd")
			events := s.events(b)
			s.lives(b, events, 1) // imports the image
			var start, stop []time.Duration
			for b.Loop() {
				up, down := s.lives(b, events, pods)
				start, stop = append(start, up), append(stop, down)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(p50(start), "ms/start")
			b.ReportMetric(p50(stop), "ms/delete")
		})
	}
}

// lives creates and deletes pods concurrently, and returns the times until all are Running and all are deleted.
func (s *server) lives(b *testing.B, events <-chan podEvent, pods int) (up, down time.Duration) {
	b.Helper()
	name := func(n int) string { return fmt.Sprintf("life-%d", n) }
	from := time.Now()
	go atOnce(b, pods, func(n int) error { return s.send(http.MethodPost, podPath, pod(name(n))) })
	up = untilEvents(b, events, from, pods, func(ev podEvent) bool { return ev.Object.Status.Phase == corev1.PodRunning })
	time.Sleep(settle)
	from = time.Now()
	go atOnce(b, pods, func(n int) error { return s.send(http.MethodDelete, podPath+"/"+name(n), "") })
	down = untilEvents(b, events, from, pods, func(ev podEvent) bool { return ev.Type == "DELETED" })
	time.Sleep(settle)
	return up, down
}

// atOnce calls work for all pods concurrently.
func atOnce(b *testing.B, pods int, work func(n int) error) {
	b.Helper()
	var group errgroup.Group
	for n := range pods {
		group.Go(func() error { return work(n) })
	}
	if err := group.Wait(); err != nil {
		b.Error(err)
	}
}
