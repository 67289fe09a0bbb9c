package frugal

import (
	"os"
	"regexp"
	"runtime"
	"runtime/metrics"
	"strconv"
	"testing"
)

// fileMemory is how much of this process' memory is pages of files, in kB.
func fileMemory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skipf("skipped: the kernel does not report it: %v", err)
	}
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Skip("skipped: the kernel does not report RssFile")
	}
	kb, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kb
}

func TestReleaseProgram(t *testing.T) {
	before := fileMemory(t)
	if err := releaseProgram(); err != nil {
		t.Fatal(err)
	}
	if after := fileMemory(t); after >= before {
		t.Errorf("%d kB of files before, %d after", before, after)
	}
}

// TestCollect: idle memory is returned to the system, once.
func TestCollect(t *testing.T) {
	const size = 64 << 20
	held := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		held[i] = 1
	}
	runtime.GC() // after a collection that counted it as live
	before := released()
	runtime.KeepAlive(held)
	last := collect(0)
	if gave := released() - before; gave < size/2 {
		t.Errorf("%d bytes were given back", gave)
	}
	if collect(last) != last {
		t.Error("collected again, though nothing was allocated")
	}
}

func released() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
