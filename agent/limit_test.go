package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTurnsBoundConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newConcurrencyLimit(time.Minute, func() int { return 2 })
		begin := time.Now()
		ended := make(chan time.Duration)
		for range 6 {
			go func() {
				back := turns.acquire(t.Context())
				time.Sleep(time.Second)
				back()
				ended <- time.Since(begin)
			}()
		}
		for n := range 6 {
			if got, want := <-ended, time.Duration(n/2+1)*time.Second; got != want {
				t.Errorf("number %d ended after %v, want %v", n, got, want)
			}
		}
	})
}

func TestStuckWorkerLosesItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newConcurrencyLimit(time.Minute, func() int { return 1 })
		late := turns.acquire(t.Context())
		begin := time.Now()
		back := turns.acquire(t.Context())
		if got := time.Since(begin); got != time.Minute {
			t.Errorf("waited %v for a caller that is stuck, want a minute", got)
		}
		late() // does not affect the current holder
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		turns.acquire(ctx)
		if got := time.Since(begin); got != time.Minute+time.Second {
			t.Errorf("had a turn after %v at the same time as another", got)
		}
		back()
		turns.acquire(t.Context())()
	})
}

// TestTurnsFollowTheRoom: without room there is still one turn, and a turn that is returned opens as many as there is
// room for by then. Whoever leaves the queue takes no turn with it.
func TestTurnsFollowTheRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		room := 0
		turns := newConcurrencyLimit(time.Hour, func() int { return room })
		first := turns.acquire(t.Context())
		had := make(chan func(), 4)
		hurried, leave := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{hurried, t.Context(), t.Context(), t.Context()} {
			go func() { had <- turns.acquire(ctx) }()
			synctest.Wait()
		}
		if n := len(had); n != 0 {
			t.Fatalf("%d more turns without room", n)
		}
		leave()
		synctest.Wait()
		(<-had)()
		room = 2
		first()
		synctest.Wait()
		if n := len(had); n != 2 {
			t.Fatalf("%d turns with room for two", n)
		}
		room = 0
		(<-had)()
		synctest.Wait()
		if n := len(had); n != 1 {
			t.Fatalf("%d turns are open, though there is no room", n)
		}
		(<-had)()
		(<-had)()
	})
}
