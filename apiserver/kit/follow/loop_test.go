package follow

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// feed is a Client whose lists and watches the test controls.
type feed struct {
	client.Client

	mu      sync.Mutex
	objs    []client.Object
	lists   int
	listErr error
	events  chan watch.Event
}

func (f *feed) List(context.Context, client.Selector) ([]client.Object, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	return f.objs, "1", f.listErr
}

func (f *feed) Watch(ctx context.Context, _ client.Selector, _ string) (<-chan watch.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events := make(chan watch.Event, 100)
	f.events = events
	out := make(chan watch.Event)
	go func() {
		defer close(out)
		for {
			select {
			case e, ok := <-events:
				if !ok {
					return
				}
				select {
				case out <- e:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func (f *feed) set(objs ...client.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objs = objs
}

func (f *feed) send(t watch.EventType, obj runtime.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events <- watch.Event{Type: t, Object: obj}
}

func pod(name string, uid types.UID, rv int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, ResourceVersion: strconv.Itoa(rv)}}
}

func deps(t *testing.T, c client.Client) Deps {
	m, err := NewMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	return Deps{Client: c, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: m}
}

// start runs a loop until the test ends, and fails the test if the loop fails.
func start[K comparable](t *testing.T, l *Loop[K]) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// settle advances time and waits until everything due has run.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// seen collects what a source received, as "+name", "~name", "-name".
type seen struct {
	mu  sync.Mutex
	all []string
}

func (s *seen) keys(old, new client.Object) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case old == nil:
		s.all = append(s.all, "+"+string(new.GetUID()))
	case new == nil:
		s.all = append(s.all, "-"+string(old.GetUID()))
	default:
		s.all = append(s.all, "~"+string(new.GetUID()))
	}
	return OnAny(old, new)
}

func (s *seen) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := ""
	for _, e := range s.all {
		out += e + " "
	}
	s.all = nil
	return out
}

func TestRelistReportsEveryDifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := &feed{objs: []client.Object{pod("a", "a1", 1), pod("b", "b1", 1)}}, &seen{}
		start(t, New(deps(t, f), Config[Key]{Name: "test",
			Sources:   []Source[Key]{{Keys: Plain(s.keys)}},
			Reconcile: func(context.Context, Key) (time.Duration, error) { return 0, nil }}))
		expect := func(want string) {
			t.Helper()
			settle(time.Minute)
			if got := s.take(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		expect("+a1 +b1 ")
		f.send(watch.Modified, pod("a", "a1", 2))
		f.send(watch.Bookmark, pod("", "", 9))
		f.send(watch.Added, pod("c", "c1", 3))
		f.send(watch.Deleted, pod("b", "b1", 4))
		expect("~a1 +c1 -b1 ")
		// a was replaced, c removed and d created while the watch was down
		f.set(pod("a", "a2", 7), pod("d", "d1", 8))
		f.send(watch.Error, &metav1.Status{Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
		expect("-c1 -a1 +a2 +d1 ")
		close(f.events)
		expect("")
	})
}

func TestNoReconcileBeforeEveryFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := &feed{objs: []client.Object{pod("a", "a", 1)}}
		bad := &feed{listErr: errors.New("not yet")}
		count := 0
		start(t, New(deps(t, &both{good: good, bad: bad}), Config[Key]{Name: "test",
			Sources: []Source[Key]{
				{Selector: client.Selector{Resource: client.Pods}, Keys: Plain(OnAny)},
				{Selector: client.Selector{Resource: client.Nodes}, Keys: Plain(OnAny)},
			},
			Reconcile: func(context.Context, Key) (time.Duration, error) { count++; return 0, nil }}))
		settle(time.Hour)
		if count != 0 {
			t.Fatal("reconciled before the second source had listed")
		}
		if bad.lists > 150 {
			t.Errorf("%d lists in an hour: no backoff", bad.lists)
		}
		bad.mu.Lock()
		bad.listErr = nil
		bad.mu.Unlock()
		settle(time.Minute)
		if count != 1 {
			t.Fatalf("reconciled %d times, want once", count)
		}
	})
}

// both has one feed for pods and one for everything else.
type both struct {
	client.Client
	good, bad *feed
}

func (b *both) feed(sel client.Selector) *feed {
	if sel.Resource == client.Pods {
		return b.good
	}
	return b.bad
}

func (b *both) List(ctx context.Context, sel client.Selector) ([]client.Object, string, error) {
	return b.feed(sel).List(ctx, sel)
}

func (b *both) Watch(ctx context.Context, sel client.Selector, rv string) (<-chan watch.Event, error) {
	return b.feed(sel).Watch(ctx, sel, rv)
}

func TestOneWorkerPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, runs := map[Key]bool{}, 0
		f := &feed{objs: []client.Object{pod("a", "a", 1), pod("b", "b", 1)}}
		start(t, New(deps(t, f), Config[Key]{Name: "test", Workers: 4,
			Sources: []Source[Key]{{Keys: Plain(OnAny)}},
			Reconcile: func(_ context.Context, k Key) (time.Duration, error) {
				mu.Lock()
				if running[k] {
					t.Errorf("%v reconciled twice at once", k)
				}
				running[k], runs = true, runs+1
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running[k] = false
				mu.Unlock()
				return 0, nil
			}}))
		synctest.Wait()
		for rv := range 5 {
			f.send(watch.Modified, pod("a", "a", rv+2))
		}
		settle(10 * time.Second)
		if runs != 3 {
			t.Errorf("%d runs, want 3: a twice, as its changes came during the first, and b once", runs)
		}
	})
}

func TestErrorsBackOffAndSuccessForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		start(t, New(deps(t, &feed{}), Config[string]{Name: "test", Start: []string{"x"},
			Reconcile: func(context.Context, string) (time.Duration, error) {
				at = append(at, time.Since(begin))
				switch len(at) {
				case 1, 2, 3, 5:
					return 0, errors.New("again")
				case 4:
					return time.Minute, nil
				}
				return 0, nil
			}}))
		settle(time.Hour)
		ms := time.Millisecond
		want := []time.Duration{0, 5 * ms, 15 * ms, 35 * ms, time.Minute + 35*ms, time.Minute + 40*ms}
		if len(at) != len(want) {
			t.Fatalf("ran at %v, want %v", at, want)
		}
		for i := range want {
			if d := at[i] - want[i]; d < 0 || d > ms {
				t.Errorf("run %d at %v, want %v", i, at[i], want[i])
			}
		}
	})
}

// A Reconcile that hangs is ended, and its key retried after the first pause.
func TestDeadlineAndPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		start(t, New(deps(t, &feed{}), Config[string]{Name: "test", Start: []string{"x"},
			Deadline: time.Minute, MinRetry: time.Second, MaxRetry: 3 * time.Second,
			Reconcile: func(ctx context.Context, _ string) (time.Duration, error) {
				at = append(at, time.Since(begin))
				switch len(at) {
				case 1:
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), errDeadline) {
						t.Error(context.Cause(ctx))
					}
					return 0, ctx.Err()
				case 2, 3:
					return 0, errors.New("again")
				}
				return 0, nil
			}}))
		settle(time.Hour)
		want := []time.Duration{0, 61 * time.Second, 63 * time.Second, 66 * time.Second}
		if len(at) != len(want) {
			t.Fatalf("ran at %v, want %v", at, want)
		}
		for i := range want {
			if d := at[i] - want[i]; d < 0 || d > time.Millisecond {
				t.Errorf("run %d at %v, want %v", i, at[i], want[i])
			}
		}
	})
}

// flaky panics, then fails, then runs.
type flaky struct{ runs atomic.Int64 }

func (*flaky) Name() string { return "flaky" }

func (f *flaky) Run(ctx context.Context) error {
	switch f.runs.Add(1) {
	case 1:
		var missing *flaky
		missing.runs.Add(1)
	case 2:
		return errors.New("cannot")
	}
	<-ctx.Done()
	return nil
}

func TestSupervisorRestartsAndReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{}
		d, metrics := deps(t, nil), prometheus.NewRegistry()
		panics, err := guard.New(d.Log, d.Clock, metrics)
		if err != nil {
			t.Fatal(err)
		}
		d.Guard = panics
		s := Supervise(f, d)
		ctx, cancel := context.WithCancel(t.Context())
		if s.Check(ctx) == nil {
			t.Error("healthy before it started")
		}
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		if err := s.Check(ctx); err == nil || f.runs.Load() != 1 {
			t.Errorf("after the panic: %d runs, check %v", f.runs.Load(), err)
		}
		families, err := metrics.Gather()
		if err != nil || len(families) != 1 || families[0].Metric[0].Counter.GetValue() != 1 ||
			families[0].Metric[0].Label[0].GetValue() != "controller" {
			t.Errorf("metrics: %v, %v", families, err)
		}
		settle(minRestart + 2*minRestart + time.Second)
		if err := s.Check(ctx); err == nil || f.runs.Load() != 3 {
			t.Errorf("just restarted: %d runs, check %v", f.runs.Load(), err)
		}
		settle(restartStable)
		if err := s.Check(ctx); err != nil {
			t.Errorf("still unhealthy: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestPanicEndsOnlyTheLoop(t *testing.T) {
	for name, cfg := range map[string]Config[Key]{
		"in Reconcile": {Reconcile: func(context.Context, Key) (time.Duration, error) { panic("r") }},
		"in Keys": {Sources: []Source[Key]{{Keys: Plain(func(_, _ client.Object) []Key { panic("k") })}},
			Reconcile: func(context.Context, Key) (time.Duration, error) { return 0, nil }},
		"in Each": {Reconcile: func(context.Context, Key) (time.Duration, error) {
			Each(2, []int{1, 2, 3}, func(int) error { panic("e") })
			return 0, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Name, cfg.Start = "test", []Key{{Name: "x"}}
			synctest.Test(t, func(t *testing.T) {
				err := New(deps(t, &feed{objs: []client.Object{pod("a", "a", 1)}}), cfg).Run(t.Context())
				if p := (*guard.Panic)(nil); !errors.As(err, &p) || len(p.Stack) == 0 {
					t.Errorf("got %v, want a guard.Panic with a stack", err)
				}
			})
		})
	}
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

// TestWakesDuringARunAreOne: a thousand changes while a key is reconciled cause one more Reconcile.
func TestWakesDuringARunAreOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, runs := &feed{objs: []client.Object{pod("a", "a", 1)}}, 0
		start(t, New(deps(t, f), Config[Key]{Name: "test", Sources: []Source[Key]{{Keys: Plain(OnAny)}},
			Reconcile: func(context.Context, Key) (time.Duration, error) { runs++; time.Sleep(time.Second); return 0, nil }}))
		synctest.Wait()
		for rv := range 1000 {
			f.send(watch.Modified, pod("a", "a", rv+2))
			synctest.Wait()
		}
		if settle(time.Minute); runs != 2 {
			t.Errorf("%d runs, want 2", runs)
		}
	})
}

// TestEarliestTimeCounts: a key that waits for several times runs at the first, and at most the limit of workers run at
// once.
func TestEarliestTimeCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		began, at, now, most := time.Now(), map[int][]time.Duration{}, 0, 0
		l := New(deps(t, &feed{}), Config[int]{Name: "test", Workers: 2,
			Reconcile: func(_ context.Context, k int) (time.Duration, error) {
				mu.Lock()
				now++
				most = max(most, now)
				at[k] = append(at[k], time.Since(began))
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				now--
				mu.Unlock()
				return 0, nil
			}})
		start(t, l)
		l.AddAfter(time.Hour, 1)
		l.AddAfter(time.Minute, 1)
		l.AddAfter(time.Second, 2, 3, 4, 5)
		settle(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if len(at) != 5 || len(at[1]) != 1 || at[1][0] != time.Minute || most != 2 {
			t.Errorf("ran at %v, %d at once", at, most)
		}
	})
}
