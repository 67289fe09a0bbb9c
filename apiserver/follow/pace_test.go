package follow

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/client"
)

// TestEchoesAreDelayed: a key that each of its runs wakes again, also through another key, runs less and
// less often; after a rest it runs at once.
func TestEchoesAreDelayed(t *testing.T) {
	for name, next := range map[string]map[string]string{
		"itself":    {"a": "a"},
		"in a ring": {"a": "b", "b": "c", "c": "a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs atomic.Int64
				var rests atomic.Bool
				d := deps(t, &feed{})
				var l *Loop[string]
				l = New(d, Config[string]{Name: "test", Start: []string{"a"}, Reconcile: func(_ context.Context, k string) (time.Duration, error) {
					if runs.Add(1); !rests.Load() {
						l.Add(next[k])
					}
					return 0, nil
				}})
				start(t, l)
				settle(time.Hour)
				first := runs.Load()
				if first > int64(700*len(next)) {
					t.Errorf("%d runs in an hour", first)
				}
				settle(time.Hour)
				if n := runs.Load() - first; n < 60 || n > int64(200*len(next)) {
					t.Errorf("%d runs in the second hour", n)
				}
				if len(d.Metrics.Unsettled()) != 1 {
					t.Error("it does not show that a key does not settle")
				}
				rests.Store(true)
				settle(time.Minute)
				if got := d.Metrics.Unsettled(); len(got) != 0 {
					t.Errorf("%v do not settle", got)
				}
				first = runs.Load()
				for range 10 {
					l.Add("a")
					synctest.Wait()
				}
				if n := runs.Load() - first; n != 10 {
					t.Errorf("%d runs, want 10 at once", n)
				}
			})
		})
	}
}

// TestOtherChangesAreNotDelayed: a key that is woken now and then, for days, never waits.
func TestOtherChangesAreNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int64 // time of the change
		f := &feed{}
		start(t, New(deps(t, f), Config[Key]{Name: "test", Sources: []Source[Key]{{Keys: Plain(OnAny)}},
			Reconcile: func(context.Context, Key) (time.Duration, error) { ran.Store(time.Now().UnixNano()); return 0, nil }}))
		synctest.Wait()
		for rv := range 1000 {
			f.send(watch.Modified, pod("a", "a", rv+1))
			if synctest.Wait(); ran.Load() != time.Now().UnixNano() {
				t.Fatalf("change %d waited", rv)
			}
			time.Sleep(150 * time.Millisecond)
		}
	})
}

// TestShortDelaysAreEchoes: a Reconcile that requests its next run at once is delayed too.
func TestShortDelaysAreEchoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		start(t, New(deps(t, &feed{}), Config[string]{Name: "test", Start: []string{"a"},
			Reconcile: func(context.Context, string) (time.Duration, error) { runs.Add(1); return time.Nanosecond, nil }}))
		settle(time.Hour)
		if n := runs.Load(); n > 700 {
			t.Errorf("%d runs", n)
		}
	})
}

// TestConflictsBackOff: after a conflict the key backs off.
func TestConflictsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		start(t, New(deps(t, &feed{}), Config[string]{Name: "test", Start: []string{"a"},
			Reconcile: func(context.Context, string) (time.Duration, error) {
				runs.Add(1)
				return 0, apierrors.NewConflict(client.Pods.GroupResource(), "a", nil)
			}}))
		settle(time.Hour)
		if n := runs.Load(); n > 25 {
			t.Errorf("%d runs in an hour", n)
		}
	})
}

// TestPaceForgets: keys at rest use no memory.
func TestPaceForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(deps(t, &feed{}), Config[int]{Name: "test",
			Reconcile: func(context.Context, int) (time.Duration, error) { return 0, nil }})
		start(t, l)
		for n := range 10_000 {
			l.Add(n)
			settle(10 * time.Millisecond)
		}
		if n := len(l.queue.pace.keys); n > 128 {
			t.Errorf("%d keys are remembered", n)
		}
	})
}

// TestKeysIsRetried: a change is not lost if Keys fails.
func TestKeysIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{objs: []client.Object{pod("a", "a", 1), pod("b", "b", 1)}}
		var asked, got atomic.Int64
		var up atomic.Bool
		start(t, New(deps(t, f), Config[string]{Name: "test",
			Sources: []Source[string]{{Keys: func(ctx context.Context, _, new client.Object) ([]string, error) {
				if ctx.Err() != nil {
					t.Error("asked with a context that has ended")
				}
				if asked.Add(1); !up.Load() {
					return nil, context.DeadlineExceeded
				}
				return []string{new.(*corev1.Pod).Name}, nil
			}}},
			Reconcile: func(context.Context, string) (time.Duration, error) { got.Add(1); return 0, nil }}))
		settle(time.Minute)
		if asked.Load() > 15 || got.Load() > 0 {
			t.Errorf("asked %d times in a minute, got %d", asked.Load(), got.Load())
		}
		up.Store(true)
		settle(time.Minute)
		if got.Load() != 2 {
			t.Errorf("got %d, want both", got.Load())
		}
	})
}
