package harness

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Once calls take only once, regardless of -benchtime, for a figure that takes minutes.
func Once(b *testing.B, take func(*testing.B)) {
	for taken := false; b.Loop(); taken = true {
		if !taken {
			take(b)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// Interrupted calls stop and exits on SIGINT or SIGTERM until end is called, because Go ends an interrupted test
// without its cleanups.
func Interrupted(stop func()) (end func()) {
	signals, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	go func() {
		select {
		case <-signals:
			stop()
			os.Exit(1)
		case <-over:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(over)
	}
}

// Clients returns n HTTPS clients, configured as in client-go, and the server's URL. Each client has one connection,
// and opens another one when the server accepts no more streams on it.
func (s *Server) Clients(t testing.TB, n int) (all []*http.Client, base string) {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.Dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		secure, err := rest.TLSConfigFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		one := &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: true}
		t.Cleanup(one.CloseIdleConnections)
		wrapped, err := rest.HTTPWrappersForConfig(cfg, one)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: wrapped}
		resp, err := client.Get(cfg.Host + "/version") // opens the connection
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		all = append(all, client)
	}
	return all, cfg.Host
}

// CPU returns the CPU time of the process from its CPU clock, because /proc counts in steps of 10 ms.
func (s *Server) CPU(t testing.TB) time.Duration {
	t.Helper()
	const scheduled = 2 // CPUCLOCK_SCHED, in the low bits of the clock ID
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^s.Cmd.Process.Pid)<<3|scheduled, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Nano())
}

// ProcNumber returns the number after a label in /proc/PID/file.
func ProcNumber(t testing.TB, pid int, file, label string) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), label)
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Cost waits until the server is at rest and returns its live memory and stacks, in bytes, and its CPU seconds.
func (s *Server) Cost(t testing.TB) (memory, cpu float64) {
	t.Helper()
	if err := s.Settled(); err != nil {
		t.Fatal(err)
	}
	used := s.CPU(t)
	for range 5 { // each GC halves unused stacks, and the contents of a sync.Pool survive one GC
		s.Get("/debug/pprof/heap?gc=1")
	}
	_, text := s.Get("/metrics")
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "go_memstats_heap_alloc_bytes" || name == "go_memstats_stack_inuse_bytes" {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			memory += v
		}
	}
	return memory, used.Seconds()
}
