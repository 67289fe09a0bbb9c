package watch

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
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

// watched starts n watches, until ctx ends. All enter before the first one waits: one that waits while there are few does so for the
// change itself, and for its group afterwards.
func watched(ctx context.Context, p *pace, n int) *crowded {
	c := &crowded{wake: make(chan struct{}), woken: make([]int, n), first: make([]time.Time, n)}
	groups, leaves := make([]*group, n), make([]func(), n)
	for i := range n {
		groups[i], leaves[i] = p.enter("pods")
	}
	for i, g := range groups {
		go func() {
			defer leaves[i]()
			for {
				select {
				case <-p.after(g, c.seen()):
					c.count(i)
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	synctest.Wait()
	return c
}

func paced(t *testing.T, n int, check func(c *crowded)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := newPace(Config{Clock: clock.RealClock{}, Stop: ctx})
		time.Sleep(time.Hour)
		check(watched(ctx, p, n))
		cancel()
		synctest.Wait()
		if len(p.of) != 0 {
			t.Errorf("watches are gone, but %d resources are kept", len(p.of))
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

// A watch that has not read a change does not wait for the next one, although the others do.
func TestWatchThatIsBehindIsNotPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p := newPace(Config{Clock: clock.RealClock{}, Stop: ctx})
		var groups []*group
		for range few + 1 {
			g, leave := p.enter("pods")
			defer leave()
			groups = append(groups, g)
		}
		before, now := make(chan struct{}), make(chan struct{})
		close(before)
		others := p.after(groups[0], now)
		synctest.Wait()
		if closed(others) || !closed(p.after(groups[1], before)) {
			t.Error("a watch waits for a change after the one that it has not read")
		}
		if p.after(groups[1], now) != others {
			t.Error("watches of a group do not wait together")
		}
	})
}
