package follow

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// line is a queue under test, with what its workers did.
type line struct {
	*queue[int]
	wg sync.WaitGroup

	mu    sync.Mutex // guards what follows
	began time.Time
	runs  map[int][]time.Duration // when each key ran
	order []int
	now   int // running
	most  int
}

func newLine(t *testing.T, workers int, takes time.Duration) *line {
	t.Helper()
	metrics, err := NewMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &line{began: time.Now(), runs: map[int][]time.Duration{}}
	l.queue = newQueue(clock.RealClock{}, metrics, "test", time.Second, 10*time.Second, func(int, time.Duration) {})
	l.start(workers, l.wg.Go, func(key int) {
		l.mu.Lock()
		l.now++
		l.most = max(l.most, l.now)
		l.runs[key] = append(l.runs[key], time.Since(l.began))
		l.order = append(l.order, key)
		l.mu.Unlock()
		time.Sleep(takes)
		l.mu.Lock()
		l.now--
		l.mu.Unlock()
	})
	t.Cleanup(func() { l.shutDown(); l.wg.Wait() })
	return l
}

// TestQueue: keys run in order, on as many workers as are allowed, and none is left at rest; a key never runs twice at a time,
// and once more if it was added while it ran.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 2, time.Second)
		for _, key := range []int{1, 2, 3, 3, 1, 4} {
			l.Add(key)
		}
		time.Sleep(500 * time.Millisecond)
		l.Add(1) // runs
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []int{1, 2, 3, 4, 1}; !slices.Equal(sorted(l.order[:2]), want[:2]) || !slices.Equal(sorted(l.order[2:4]), want[2:4]) || !slices.Equal(l.order[4:], want[4:]) {
			t.Errorf("ran %v, want %v, two at a time", l.order, want)
		}
		if l.most != 2 {
			t.Errorf("%d ran at a time, want 2", l.most)
		}
		if l.queue.crew.busy != 0 || l.queue.ready != nil || len(l.queue.dirty)+len(l.queue.running)+len(l.queue.later.at) > 0 {
			t.Errorf("at rest: %d workers, %v", l.queue.crew.busy, l.queue.ready)
		}
	})
}

func sorted(keys []int) []int { return slices.Sorted(slices.Values(keys)) }

// TestQueueDelays: the earliest time counts, and nothing runs after the end.
func TestQueueDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 1, 0)
		l.AddAfter(1, time.Minute)
		l.AddAfter(2, 2*time.Minute)
		l.AddAfter(3, 3*time.Minute)
		l.AddAfter(3, time.Second)
		l.AddAfter(1, time.Hour)
		l.AddAfter(4, 3*time.Hour)
		time.Sleep(2 * time.Hour)
		l.shutDown()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for key, want := range map[int][]time.Duration{1: {time.Minute}, 2: {2 * time.Minute}, 3: {time.Second}, 4: nil} {
			if !slices.Equal(l.runs[key], want) {
				t.Errorf("%d ran at %v, want %v", key, l.runs[key], want)
			}
		}
	})
}

// TestQueueRetries: the pauses of a key that fails double up to the longest, until it is forgotten.
func TestQueueRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 1, 0)
		var at []time.Duration
		next := time.Duration(0)
		for _, pause := range []time.Duration{1, 2, 4, 8, 10, 10} {
			l.fail(1)
			time.Sleep(time.Minute)
			at = append(at, next+pause*time.Second)
			next += time.Minute
		}
		if l.failures(1) != 6 {
			t.Errorf("%d failures, want 6", l.failures(1))
		}
		l.forget(1)
		l.fail(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if at = append(at, next+time.Second); !slices.Equal(l.runs[1], at) {
			t.Errorf("ran at %v, want %v", l.runs[1], at)
		}
	})
}
