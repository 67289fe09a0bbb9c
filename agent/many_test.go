package agent_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"monopod/agent"
)

// A node with --max-pods=500 runs 500 pods.
func TestFiveHundredPods(t *testing.T) {
	inWorld(t, func(w *world) {
		const pods = 500
		w.stop()
		w.adjust = func(c *agent.Config) { c.MaxPods = pods }
		w.startAgent()
		name := func(i int) string { return fmt.Sprintf("p%d", i) }
		for i := range pods {
			w.create(pod(name(i)))
		}
		w.after(5 * time.Second)
		alive := map[string]bool{}
		for i := range pods {
			p := w.get(name(i))
			if !ready(p) || p.Status.ContainerStatuses[0].RestartCount != 0 {
				t.Fatalf("%s: %+v", name(i), p.Status)
			}
			alive[string(p.UID)] = true
		}
		checkOnly(w, alive)
		w.create(pod("more"))
		w.after(time.Second)
		if p := w.get("more"); p.Status.Reason != "OutOfpods" {
			t.Errorf("the node admits pod 501: %+v", p.Status)
		}
		w.delete("more", 0)
		for i := range pods {
			w.delete(name(i), 1)
		}
		w.after(10 * time.Second)
		for i := range pods {
			if p := w.get(name(i)); p != nil {
				t.Fatalf("%s: %+v", name(i), p.Status)
			}
		}
		w.nothingLeft()
	})
}

// Deleted pods leave neither goroutines nor memory. The test measures the whole process, so it is not parallel.
func TestNothingGrows(t *testing.T) { //nolint:paralleltest // see above
	openWorld(t, func(w *world) {
		const lives = 300
		r := rand.New(rand.NewPCG(1, 2))
		cycles(w, r, 600) // until caches and the history of the API are full
		w.nothingLeft()
		heap, goroutines := measure(w)
		cycles(w, r, lives)
		w.nothingLeft()
		moreHeap, moreGoroutines := measure(w)
		t.Logf("heap %d, then %d; goroutines %d, then %d", heap, moreHeap, goroutines, moreGoroutines)
		if grown := int64(moreHeap) - int64(heap); grown > lives*maxKept {
			t.Errorf("the heap grew by %d bytes after %d pods", grown, lives)
		}
		if moreGoroutines > goroutines {
			t.Errorf("%d more goroutines than the %d before", moreGoroutines-goroutines, goroutines)
		}
	})
}

// maxKept is the allowed growth in bytes per pod. It allows for measurement error; a leaked worker alone needs
// thousands of bytes.
const maxKept = 1000

// cycles creates pods of several kinds, 50 at a time, and removes them at random times.
func cycles(w *world, r *rand.Rand, n int) {
	w.Helper()
	for range n / 50 {
		for i := range 50 {
			w.create(pod(fmt.Sprintf("p%d", i), [][]string{nil, {"-ignore-term"}, {"exit", "1"}, {"sleep", "1h"}}[r.IntN(4)]...))
		}
		w.after(time.Duration(r.IntN(40)) * time.Millisecond)
		for i := range 50 {
			w.delete(fmt.Sprintf("p%d", i), r.Int64N(3))
			w.after(time.Duration(r.IntN(2)) * time.Millisecond)
		}
		w.after(10 * time.Second)
		w.mu.Lock()
		w.seen, w.events = nil, nil
		w.mu.Unlock()
	}
}

// measure returns goroutines and memory after a garbage collection.
func measure(w *world) (heap uint64, goroutines int) {
	w.after(10 * time.Minute)
	for range 3 {
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc, runtime.NumGoroutine()
}
