package follow

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// TestPace: a key that wakes itself in each run, also through another key, soon runs at a limited rate. Other keys run
// at once, and so does this key after it was idle. The state of idle keys is deleted.
func TestPace(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]map[string]string{
		"itself":    {"a": "a"},
		"in a ring": {"a": "b", "b": "c", "c": "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var runs, others atomic.Int64
				var rests atomic.Bool
				var l *Loop[string]
				l = New(deps(t, &feed{}), Config[string]{Name: "test", Start: []string{"a"},
					Reconcile: func(_ context.Context, k string) (time.Duration, error) {
						switch {
						case k == "other":
							others.Add(1)
						case !rests.Load():
							runs.Add(1)
							l.Add(next[k])
						default:
							runs.Add(1)
						}
						return 0, nil
					}})
				start(t, l)
				settle(10 * time.Minute)
				if n, most := runs.Load(), int64((runsAtOnce+620*runsPerSecond)*len(next)); n > most || n < most/4 {
					t.Errorf("%d runs in ten minutes, want at most %d", n, most)
				}
				l.Add("other")
				if synctest.Wait(); others.Load() != 1 {
					t.Error("another key waits")
				}
				rests.Store(true)
				settle(10 * time.Minute)
				first := runs.Load()
				for range 10 {
					l.Add("a")
					synctest.Wait()
				}
				if n := runs.Load() - first; n != 10 {
					t.Errorf("%d runs after a rest, want 10 at once", n)
				}
			})
		})
	}
	p, now := pace[int]{of: map[int]*rate.Limiter{}, sweep: minSweep}, time.Now()
	for n := range 10 * minSweep {
		now = now.Add(time.Second)
		p.wait(n, now)
	}
	if len(p.of) > minSweep {
		t.Errorf("the rates of %d keys are in memory", len(p.of))
	}
}
