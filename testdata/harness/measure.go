package harness

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Once calls take once, whatever -benchtime is, for a figure that takes minutes.
func Once(b *testing.B, take func(*testing.B)) {
	AtMost(b, 1, func() { take(b) })
}

// AtMost calls round as often as -benchtime says, but at most so many times.
func AtMost(b *testing.B, most int, round func()) {
	for n := 0; b.Loop(); n++ {
		if n < most {
			round()
		}
	}
}

// Clients returns n clients of HTTPS as client-go makes them, which have one connection each, and the server's URL.
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
		one := &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: true, MaxConnsPerHost: 1}
		t.Cleanup(one.CloseIdleConnections)
		wrapped, err := rest.HTTPWrappersForConfig(cfg, one)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &http.Client{Transport: wrapped})
	}
	return all, cfg.Host
}

// CPU returns what the process has used so far, from the kernel's clock of the process: /proc counts in steps of 10 ms.
func (s *Server) CPU(t testing.TB) time.Duration {
	t.Helper()
	const scheduled = 2 // CPUCLOCK_SCHED, in the low bits of the clock's number
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
	for range 5 { // each returns half of an unused stack; what is in a sync.Pool survives one
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
