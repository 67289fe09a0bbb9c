package turns

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTurnsBoundConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := New(2, time.Minute)
		begin := time.Now()
		ended := make(chan time.Duration)
		for range 6 {
			go func() {
				back := turns.Take(t.Context())
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
		turns := New(1, time.Minute)
		late := turns.Take(t.Context())
		begin := time.Now()
		back := turns.Take(t.Context())
		if got := time.Since(begin); got != time.Minute {
			t.Errorf("waited %v for a caller that is stuck, want a minute", got)
		}
		late() // does not affect the current holder
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		turns.Take(ctx)
		if got := time.Since(begin); got != time.Minute+time.Second {
			t.Errorf("had a turn after %v at the same time as another", got)
		}
		back()
		turns.Take(t.Context())()
	})
}
