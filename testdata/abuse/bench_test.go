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

// atOnce is how many hostile requests one user sends at once.
const atOnce = 50

// BenchmarkHostile has one user send hostile requests, as many at once as the
// server takes from one, while another user reads a ConfigMap again and again. It
// reports the most memory that the server took in all that time, and how long the
// reader waited, beside the same reads of a server at rest. One round sends a mix of
// all kinds, the others one kind each; of these the worst is reported.
func BenchmarkHostile(b *testing.B) {
	requests := hostile.Requests(namespace)
	var mixed []hostile.Request
	for n := range atOnce {
		mixed = append(mixed, requests[n%len(requests)])
	}
	b.Run("mixed", func(b *testing.B) {
		v := startVictim(b)
		for b.Loop() {
			v.attack(b, mixed)
		}
		v.report(b)
	})
	b.Run("each", func(b *testing.B) {
		v := startVictim(b)
		for first := true; b.Loop(); first = false { // a minute is enough, whatever -benchtime says
			if !first {
				continue
			}
			for _, r := range requests {
				v.attack(b, slices.Repeat([]hostile.Request{r}, atOnce))
			}
		}
		v.report(b)
	})
}

// victim is a server of its own with an attacker and somebody who reads.
type victim struct {
	server           *server
	pid              int
	attacker, reader user
	quiet            time.Duration // p99 of reads of the server at rest
	worst            time.Duration // p99 of the worst attack
	worstName        string
}

func startVictim(b *testing.B) *victim {
	b.Helper()
	programs := harness.Build(b)
	dir, err := programs.NewFolder()
	if err != nil {
		b.Fatal(err)
	}
	s := harness.NewServer(programs.Monopod(harness.Plain), dir, "--node-name", "node1", "--runtime=fake")
	b.Cleanup(func() {
		s.CleanUp(false)
		os.RemoveAll(dir)
	})
	s.Start()
	if err := s.Ready(); err != nil {
		b.Fatal(err)
	}
	v := &victim{pid: s.Cmd.Process.Pid}
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
	reads := 0
	v.quiet = p99(v.read(b, func() bool { reads++; return reads < 500 }))
	return v
}

// attack sends the requests at once and reads until each has been answered.
func (v *victim) attack(b *testing.B, requests []hostile.Request) {
	b.Helper()
	if _, err := v.server.want(b.Context(), http.MethodPost, nsPath+"/configmaps", `{"metadata":{"name":"target"},"data":{"k":"v"}}`); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	var wg sync.WaitGroup
	for _, r := range requests {
		wg.Go(func() {
			code, data, err := v.server.do(context.Background(), v.attacker, r.Method, r.Path, r.ContentType, []byte(r.Body))
			if err != nil || code >= http.StatusInternalServerError && code != http.StatusGatewayTimeout {
				b.Errorf("%s: %d %.200s, %v", r.Name, code, data, err)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	took := p99(v.read(b, func() bool {
		select {
		case <-done:
			return false
		default:
			return true
		}
	}))
	b.Logf("%s: p99 %v, %v", requests[0].Name, took, time.Since(began))
	if took > v.worst {
		v.worst, v.worstName = took, requests[0].Name
	}
}

// read reads once, and while more says so, one after another.
func (v *victim) read(b *testing.B, more func() bool) (took []time.Duration) {
	b.Helper()
	for again := true; again; again = more() {
		from := time.Now()
		code, data, err := v.server.do(b.Context(), v.reader, http.MethodGet, nsPath+"/configmaps/kube-root-ca.crt", "", nil)
		if err != nil || code != http.StatusOK {
			b.Fatalf("%d %.200s, %v", code, data, err)
		}
		took = append(took, time.Since(from))
		time.Sleep(time.Millisecond) // a user, not a second attacker
	}
	return took
}

func (v *victim) report(b *testing.B) {
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
	b.Logf("worst for the reader: %s", v.worstName)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(kb*1024/1e6, "MB-RSS-peak")
	b.ReportMetric(milliseconds(v.worst), "ms-GET-p99")
	b.ReportMetric(milliseconds(v.quiet), "ms-GET-p99-at-rest")
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}
