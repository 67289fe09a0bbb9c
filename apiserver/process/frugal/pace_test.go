package frugal

import (
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		was   int
		after time.Duration
		want  int
	}{
		{25, time.Millisecond, 50},
		{50, 99 * time.Millisecond, 100},
		{100, time.Millisecond, 100},
		{50, 500 * time.Millisecond, 50},
		{100, time.Minute, 25},
		{25, time.Minute, 25},
	} {
		if got := percent(c.was, c.after); got != c.want {
			t.Errorf("%d%%, and again after %v: %d%%, want %d%%", c.was, c.after, got, c.want)
		}
	}
}

// TestSet: a start, load, and then none.
func TestSet(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(busyPercent))
	now := time.Now()
	p := &pacer{percent: busyPercent, last: now}
	for _, step := range []struct {
		after time.Duration
		want  uint64
	}{{time.Millisecond, busyPercent}, {time.Hour, calmPercent}, {time.Millisecond, 2 * calmPercent}, {time.Hour, calmPercent}} {
		now = now.Add(step.after)
		p.set(now)
		if got := growth(); got != step.want {
			t.Errorf("%d%% %v later, want %d%%", got, step.after, step.want)
		}
	}
}

func growth() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
