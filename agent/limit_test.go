package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimitBoundsConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slots := newConcurrencyLimit(time.Minute, func() int { return 2 })
		begin := time.Now()
		ended := make(chan time.Duration)
		for range 6 {
			go func() {
				release := slots.acquire(t.Context())
				time.Sleep(time.Second)
				release()
				ended <- time.Since(begin)
			}()
		}
		for n := range 6 {
			if got, want := <-ended, time.Duration(n/2+1)*time.Second; got != want {
				t.Errorf("caller %d finished after %v, want %v", n, got, want)
			}
		}
	})
}

func TestStuckCallerLosesItsSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slots := newConcurrencyLimit(time.Minute, func() int { return 1 })
		late := slots.acquire(t.Context())
		begin := time.Now()
		release := slots.acquire(t.Context())
		if got := time.Since(begin); got != time.Minute {
			t.Errorf("waited %v for the slot of a stuck caller, want a minute", got)
		}
		late() // does not affect the current holder
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		slots.acquire(ctx)
		if got := time.Since(begin); got != time.Minute+time.Second {
			t.Errorf("the third caller returned after %v, want its timeout of 1m1s", got)
		}
		release()
		slots.acquire(t.Context())()
	})
}

// TestLimitChanges checks that one caller gets a slot even with a limit of 0, that a release admits as many callers as
// the limit then allows, and that a caller that stops waiting occupies no slot.
func TestLimitChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := 0
		slots := newConcurrencyLimit(time.Hour, func() int { return limit })
		first := slots.acquire(t.Context())
		had := make(chan func(), 4)
		hurried, leave := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{hurried, t.Context(), t.Context(), t.Context()} {
			go func() { had <- slots.acquire(ctx) }()
			synctest.Wait()
		}
		if n := len(had); n != 0 {
			t.Fatalf("%d more slots at a limit of 0", n)
		}
		leave()
		synctest.Wait()
		(<-had)()
		limit = 2
		first()
		synctest.Wait()
		if n := len(had); n != 2 {
			t.Fatalf("%d slots at a limit of 2", n)
		}
		limit = 0
		(<-had)()
		synctest.Wait()
		if n := len(had); n != 1 {
			t.Fatalf("%d slots are in use after the limit became 0", n)
		}
		(<-had)()
		(<-had)()
	})
}
