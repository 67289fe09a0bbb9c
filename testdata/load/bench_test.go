// Package load_test measures what requests and watches cost a server, beside the program as it was before the work on its speed
// began: both are built, started and put under the same load in turn.
package load_test

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/testdata/harness"
)

const (
	// before is the commit that figures are compared with.
	before = "a3436e3bf5ddf1dc16dc6a2b5924b74ad18f8fe9"
	// enough is how long the rounds of a row may take on a busy machine before those that are left are not taken.
	enough = 25 * time.Second
	// settled is the age of a server that has returned the memory of its start.
	settled = 75 * time.Second
)

// BenchmarkRequests measures each row beside the program of the commit before, in rounds that take turns, and prints all of them in a table
// at the end. It runs once, whatever -benchtime is. Without that commit in the repository's history it measures only the program of today.
func BenchmarkRequests(b *testing.B) {
	programs := harness.Build(b)
	old, why := programs.BuildCommit(b, before)
	if old == "" {
		fmt.Printf("Nothing to compare with: commit %.7s cannot be built: %s\n", before, why)
	}
	all := groups()
	pairs := make([]pair, len(all)) // all start now: those of the last group are to be old enough
	for i := range pairs {
		if old != "" {
			pairs[i].old = startTarget(b, old)
		}
		pairs[i].now = startTarget(b, programs.Monopod(harness.Plain))
	}
	defer interrupted(pairs)()
	var done []result
	for i, rows := range all {
		for _, r := range rows {
			b.Run(r.name, func(b *testing.B) {
				harness.Once(b, func(b *testing.B) {
					res := pairs[i].measure(b, r)
					res.report(b)
					done = append(done, res)
				})
			})
		}
		pairs[i].stop()
	}
	printTable(os.Stdout, done, fmt.Sprintf("%s, server and clients together on %d CPU(s)", runtime.GOARCH, runtime.NumCPU()))
}

// pair is a server of each program. There may be no old one.
type pair struct{ old, now *target }

func (p pair) stop() {
	if p.old != nil {
		p.old.stop()
	}
	p.now.stop()
}

// interrupted ends the program with its servers if the user interrupts it, until end is called.
func interrupted(pairs []pair) (end func()) {
	signals, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	go func() {
		select {
		case <-signals:
			for _, p := range pairs {
				p.stop()
			}
			os.Exit(1)
		case <-over:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(over)
	}
}

// measure takes the rounds of a row, in turn.
func (p pair) measure(b *testing.B, r row) result {
	b.Helper()
	res := result{row: r}
	for from, n := time.Now(), 0; n < r.rounds && (n == 0 || time.Since(from) < enough); n++ {
		switch {
		case r.beside != nil:
			res.base = append(res.base, p.round(b, p.now, r.beside))
		case p.old != nil:
			res.base = append(res.base, p.round(b, p.old, r.run))
		}
		res.now = append(res.now, p.round(b, p.now, r.run))
	}
	return res
}

func (p pair) round(b *testing.B, t *target, run func(*target) (sample, error)) sample {
	b.Helper()
	t.b, t.rest = b, func() {
		if p.old != nil {
			untilAtRest(b, p.old.Server)
		}
		untilAtRest(b, p.now.Server)
	}
	s, err := run(t)
	if err == nil {
		return s
	}
	if !t.Running() {
		err = fmt.Errorf("%w\n%s", err, t.Log)
	}
	b.Fatal(err)
	return s
}

// untilAtRest waits until a server uses less than a fiftieth of a CPU, or ten seconds.
func untilAtRest(b *testing.B, s *harness.Server) {
	b.Helper()
	const look = 50 * time.Millisecond
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); {
		from := s.CPU(b)
		time.Sleep(look)
		if s.CPU(b)-from < look/50 {
			return
		}
	}
}

// target is a server under load.
type target struct {
	*harness.Server
	url   string
	http  *http.Client // with one connection
	since time.Time
	stop  func()

	b     *testing.B      // of the row
	rest  func()          // waits until both servers have nothing to do
	ready map[string]bool // what has been made for rows
	round int             // of what is written
}

func startTarget(b *testing.B, program string) *target {
	b.Helper()
	dir, err := os.MkdirTemp("", "mp")
	if err != nil {
		b.Fatal(err)
	}
	s := harness.NewServer(program, dir, "--runtime=fake", "--node-name=node1", "--eviction-hard=memory.available<100Mi")
	t := &target{Server: s, since: time.Now(), ready: map[string]bool{}, stop: sync.OnceFunc(func() {
		s.CleanUp(false)
		os.RemoveAll(dir)
	})}
	b.Cleanup(t.stop)
	s.Start()
	if err := s.Ready(); err != nil {
		b.Fatalf("%v: %s", err, s.Log)
	}
	clients, url := s.Clients(b, 1)
	t.http, t.url = clients[0], url
	return t
}

// once makes something for rows, if it has not been made.
func (t *target) once(what string, do func() error) error {
	if t.ready[what] {
		return nil
	}
	t.ready[what] = true
	return do()
}

// median is that of figures; 0 without any.
func median(figures []float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(figures))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
