package fair_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"monopod/apiserver/fair"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func full(t *testing.T, cfg fair.Config) *fair.Room {
	t.Helper()
	r := fair.New(cfg)
	for range cfg.Seats {
		if !r.Enter(t.Context(), "noisy") {
			t.Fatal("an empty room let nobody in")
		}
	}
	return r
}

// A user with one request waits for one seat, however many another one waits for.
func TestUsersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := full(t, fair.Config{Seats: 2, Queue: 10, Wait: time.Minute})
		var order []string
		for _, who := range []string{"noisy 1", "noisy 2", "noisy 3", "quiet 1", "other 1"} {
			go func() {
				if r.Enter(t.Context(), strings.Fields(who)[0]) {
					order = append(order, who)
				}
			}()
			synctest.Wait()
		}
		for range 5 {
			r.Leave()
			synctest.Wait()
		}
		if got := fmt.Sprint(order); got != "[noisy 1 quiet 1 other 1 noisy 2 noisy 3]" {
			t.Errorf("let in %s", got)
		}
		r.Leave()
		r.Leave()
		if r.Inside() != 0 {
			t.Errorf("%d are left inside", r.Inside())
		}
	})
}

func TestAQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := full(t, fair.Config{Seats: 1, Queue: 1, Wait: time.Minute})
		waited := make(chan bool)
		go func() { waited <- r.Enter(t.Context(), "a") }()
		synctest.Wait()
		if r.Enter(t.Context(), "a") {
			t.Error("let in beside the one who waits")
		}
		r.Leave()
		if !<-waited {
			t.Error("the one who waited was turned away")
		}
	})
}

func TestNobodyWaitsForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := full(t, fair.Config{Seats: 1, Queue: 1, Wait: time.Minute})
		from := time.Now()
		if r.Enter(t.Context(), "a") || time.Since(from) != time.Minute {
			t.Errorf("after %s", time.Since(from))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r.Enter(ctx, "a") {
			t.Error("let in after its context ended")
		}
		r.Leave()
		if r.Inside() != 0 || !r.Enter(t.Context(), "a") {
			t.Error("those who gave up keep a seat")
		}
	})
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	r := fair.New(fair.Config{})
	for range 1000 {
		if !r.Enter(t.Context(), "a") {
			t.Fatal("turned away")
		}
	}
}
