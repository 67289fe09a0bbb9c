package frugal

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		was   int
		share float64
		want  int
	}{
		{25, 1, 80},
		{100, 0.06, 200},
		{200, 0.2, 240},
		{50, 0.03, 80},
		{480, 0.03, 240},
		{240, 0.002, 80},
		{25, 0.009, 80},
		{240, 0.0009, 25},
		{25, 0, 25},
	} {
		if got := percent(c.was, 240, 80, c.share); got != c.want {
			t.Errorf("%d%%, and collections take %v of a core: %d%%, want %d%%", c.was, c.share, got, c.want)
		}
	}
}

// TestSet: load, a heap that becomes larger than what it may grow by, and then no load.
func TestSet(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(busyPercent))
	now, spent := time.Now(), 0.0
	p := &pacer{percent: busyPercent, growth: 30 << 20, heap: busyHeap, last: now}
	for _, step := range []struct {
		after time.Duration
		live  uint64
		want  uint64
	}{
		{10 * time.Millisecond, 10 << 20, 200}, {time.Millisecond, 10 << 20, 300}, {time.Millisecond, 20 << 20, 150}, {time.Millisecond, 1 << 30, calmPercent},
		{time.Hour, 10 << 20, calmPercent}, {time.Millisecond, 10 << 20, 80}, {time.Millisecond, 10 << 20, 160}, {500 * time.Millisecond, 10 << 20, 80}, {time.Hour, 0, calmPercent},
	} {
		now = now.Add(step.after)
		spent += 0.001
		p.set(now, startBytes, step.live, spent)
		if got := growth(); got != step.want {
			t.Errorf("%d%% %v later with %d bytes live, want %d%%", got, step.after, step.live, step.want)
		}
	}
	p.percent, p.growth = 1000, busyBytes
	for live, want := range map[uint64]uint64{busyHeap - busyBytes: 120, 100 << 20: 76, 128 << 20: 37, 176 << 20: calmPercent} {
		p.percent = 1000
		p.set(now.Add(time.Second), startBytes, live, spent+0.03)
		if got := growth(); got != want {
			t.Errorf("%d%% with %d bytes live under load, want %d%%", got, live, want)
		}
		now, spent = p.last, p.spent
	}
}

// TestSetAtTheStart: collections one after the other do not let the heap grow by more until enough was allocated.
func TestSetAtTheStart(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(busyPercent))
	now, spent := time.Now(), 0.0
	p := &pacer{percent: busyPercent, growth: busyBytes, heap: busyHeap, last: now}
	for _, step := range []struct{ all, live, want uint64 }{
		{5 << 20, 4 << 20, busyPercent}, {startBytes - 1, 8 << 20, busyPercent}, {startBytes, 8 << 20, 2 * busyPercent},
	} {
		now = now.Add(10 * time.Millisecond)
		spent += 0.005
		p.set(now, step.all, step.live, spent)
		if got := growth(); got != step.want {
			t.Errorf("%d%% with %d of %d bytes live, want %d%%", got, step.live, step.all, step.want)
		}
	}
}

func growth() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// TestLimit: the smallest limit of a cgroup and those above it counts.
func TestLimit(t *testing.T) {
	mount := t.TempDir()
	if err := os.MkdirAll(filepath.Join(mount, "a/b/c"), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"memory.max": "max\n", "a/memory.max": "4096\n", "a/b/memory.max": "8192\n"} {
		if err := os.WriteFile(filepath.Join(mount, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]uint64{"/": 1 << 20, "/a": 4096, "/a/b": 4096, "/a/b/c": 4096, "/gone": 1 << 20} {
		if got := least(upwards(mount, path, true), cgroup.limit, 1<<20); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	if Memory() == 0 {
		t.Error("this machine has no memory")
	}
}
