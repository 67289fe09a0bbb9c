package watch

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"monopod/store"
)

// crowded is a resource that changes, and its watches, which count how often each is woken, and when for the first time.
type crowded struct {
	mu    sync.Mutex // guards what follows
	wake  chan struct{}
	woken []int
	first []time.Time
}

func (c *crowded) change() {
	c.mu.Lock()
	close(c.wake)
	c.wake = make(chan struct{})
	c.mu.Unlock()
	synctest.Wait()
}

func (c *crowded) seen() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wake
}

func (c *crowded) count(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.woken[i]++; c.woken[i] == 1 {
		c.first[i] = time.Now()
	}
}

// counts returns how often each watch was woken since the last call, and when for the first time.
func (c *crowded) counts() ([]int, []time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.woken = make([]int, len(c.woken)) }()
	return c.woken, slices.Clone(c.first)
}

// resumed is the request of a watch.
type resumed func()

func (r resumed) Resume()        { r() }
func (resumed) Reserve(int) bool { return true }

// add lets another watch of pods wait. It reads everything when it is resumed.
func (c *crowded) add(p *crowds, s *Watcher, i int) *watchStream {
	st := &watchStream{enc: &encoder{s: s}, changes: &store.Changes{}, sel: store.Selector{Resource: "pods"}, ends: time.Now().Add(100 * time.Hour)}
	p.enter(st)
	park := func() {
		for !p.park(st, c.seen()) {
			if s.Stop.Err() != nil {
				p.leave(st)
				return
			}
		}
	}
	st.wait.request = resumed(func() {
		if s.Stop.Err() == nil {
			c.count(i)
		}
		park()
	})
	park()
	return st
}

func paced(t *testing.T, n int, check func(c *crowded)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := New(Config{Clock: clock.RealClock{}, Stop: ctx})
		time.Sleep(time.Hour)
		c := &crowded{wake: make(chan struct{}), woken: make([]int, n), first: make([]time.Time, n)}
		for i := range n {
			c.add(s.crowds, s, i)
		}
		synctest.Wait()
		check(c)
		cancel()
		synctest.Wait()
		if len(s.crowds.of) != 0 {
			t.Errorf("watches are gone, but %d resources are kept", len(s.crowds.of))
		}
	})
}

func TestFewWatchesAreWokenByEachChange(t *testing.T) {
	paced(t, few, func(c *crowded) {
		for range 5 {
			c.change()
		}
		woken, _ := c.counts()
		for i, n := range woken {
			if n != 5 {
				t.Fatalf("watch %d was woken %d times by 5 changes", i, n)
			}
		}
	})
}

// The first change wakes all at once. Those that follow wake each watch once in a pause, and none waits longer.
func TestManyWatchesArePaced(t *testing.T) {
	paced(t, 1000, func(c *crowded) {
		start := time.Now()
		c.change()
		woken, first := c.counts()
		for i, n := range woken {
			if n != 1 || first[i] != start {
				t.Fatalf("watch %d was woken %d times by the first change, after %v", i, n, first[i].Sub(start))
			}
		}
		const rounds = 100
		for range rounds { // a change in each half of a pause
			time.Sleep(maxPause / 2)
			c.change()
		}
		woken, _ = c.counts()
		for i, n := range woken {
			if n < rounds/2-1 || n > rounds/2+1 {
				t.Fatalf("watch %d was woken %d times by %d changes in %d pauses", i, n, rounds, rounds/2)
			}
		}
		time.Sleep(maxPause)
		synctest.Wait()
		c.counts()
		c.change()
		time.Sleep(maxPause)
		synctest.Wait()
		woken, _ = c.counts()
		for i, n := range woken {
			if n == 0 {
				t.Fatalf("watch %d was not woken within %v of the last change", i, maxPause)
			}
		}
	})
}

// Groups of many watches are woken one after the other while changes follow each other.
func TestGroupsOfWatchesTakeTurns(t *testing.T) {
	paced(t, 1000, func(c *crowded) {
		c.change()
		c.counts()
		for range 20 {
			time.Sleep(maxPause / 20)
			c.change()
		}
		time.Sleep(maxPause)
		synctest.Wait()
		_, first := c.counts()
		moments := map[time.Time]int{}
		for _, at := range first {
			moments[at]++
		}
		for at, n := range moments {
			if n > few {
				t.Errorf("%d watches were woken at %v, want at most %d", n, at, few)
			}
		}
	})
}

// A watch that has not read a change does not wait for the next one, and one whose changes come from elsewhere waits with others.
func TestWatchesWaitWithTheirLikes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := New(Config{Clock: clock.RealClock{}, Stop: ctx})
		seen := make(chan int, 10)
		add := func(i int, wake chan struct{}) (*watchStream, bool) {
			st := &watchStream{enc: &encoder{s: s}, changes: &store.Changes{}, sel: store.Selector{Resource: "pods"}, ends: time.Now().Add(time.Hour)}
			st.wait.request = resumed(func() { seen <- i })
			s.crowds.enter(st)
			return st, s.crowds.park(st, wake)
		}
		before, now, elsewhere := make(chan struct{}), make(chan struct{}), make(chan struct{})
		close(before)
		if _, waits := add(0, now); !waits {
			t.Error("a watch that has read everything does not wait")
		}
		if _, waits := add(1, before); waits {
			t.Error("a watch waits for a change after the one that it has not read")
		}
		add(2, elsewhere)
		leaves, _ := add(3, elsewhere)
		close(elsewhere)
		synctest.Wait()
		if got := len(seen); got != 2 {
			t.Errorf("%d watches were resumed, want 2", got)
		}
		<-seen
		<-seen
		if !s.crowds.park(leaves, now) {
			t.Error("a watch does not wait")
		}
		s.crowds.left(leaves)
		if len(seen) != 1 || <-seen != 3 || s.crowds.park(leaves, now) {
			t.Error("a watch waits although its client has left")
		}
		time.Sleep(2 * time.Hour) // the others have ended
		if len(seen) != 1 || <-seen != 0 {
			t.Error("a watch is not resumed at its end")
		}
		cancel()
	})
}
