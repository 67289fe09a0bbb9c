package fair_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"monopod/apiserver/flow/fair"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func full(t *testing.T, cfg fair.Config) *fair.Seats {
	t.Helper()
	r := fair.New(cfg)
	for range cfg.Seats {
		if !r.Enter(t.Context(), "noisy", 1) {
			t.Fatal("an idle server admits no request")
		}
	}
	return r
}

// A user with one waiting request waits for one seat, however many requests of another user are waiting.
func TestUsersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := full(t, fair.Config{Seats: 2, Queue: 10, Wait: time.Minute})
		var order []string
		for _, who := range []string{"noisy 1", "noisy 2", "noisy 3", "quiet 1", "other 1"} {
			go func() {
				if r.Enter(t.Context(), strings.Fields(who)[0], 1) {
					order = append(order, who)
				}
			}()
			synctest.Wait()
		}
		for _, user := range []string{"noisy", "noisy", "noisy", "quiet", "other"} {
			r.Leave(user, 1)
			synctest.Wait()
		}
		if got := fmt.Sprint(order); got != "[noisy 1 quiet 1 other 1 noisy 2 noisy 3]" {
			t.Errorf("admitted %s", got)
		}
		r.Leave("noisy", 1)
		r.Leave("noisy", 1)
		if r.Taken() != 0 {
			t.Errorf("%d seats are still taken", r.Taken())
		}
	})
}

func TestAQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := full(t, fair.Config{Seats: 1, Queue: 1, Wait: time.Minute})
		waited := make(chan bool)
		go func() { waited <- r.Enter(t.Context(), "a", 1) }()
		synctest.Wait()
		if r.Enter(t.Context(), "a", 1) {
			t.Error("admitted before the request that waits")
		}
		r.Leave("noisy", 1)
		if !<-waited {
			t.Error("the waiting request was refused")
		}
	})
}

func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := full(t, fair.Config{Seats: 1, Queue: 1, Wait: time.Minute})
		from := time.Now()
		if r.Enter(t.Context(), "a", 1) || time.Since(from) != time.Minute {
			t.Errorf("after %s", time.Since(from))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r.Enter(ctx, "a", 1) {
			t.Error("admitted after its context ended")
		}
		r.Leave("noisy", 1)
		if r.Taken() != 0 || !r.Enter(t.Context(), "a", 1) {
			t.Error("a request that gave up keeps a seat")
		}
	})
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	r := fair.New(fair.Config{})
	for range 1000 {
		if !r.Enter(t.Context(), "a", 1) {
			t.Fatal("refused without a limit")
		}
	}
}

// A large request is admitted in its turn: later small requests wait, although there are enough seats for them.
func TestLargeRequestsAreNotStarved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := fair.New(fair.Config{Seats: 10, Queue: 10, Wait: time.Minute})
		r.Enter(t.Context(), "a", 6)
		var order []string
		for _, c := range []struct {
			user  string
			seats int
		}{{"b", 10}, {"c", 2}} {
			go func() {
				if r.Enter(t.Context(), c.user, c.seats) {
					order = append(order, c.user)
				}
			}()
			synctest.Wait()
		}
		if len(order) > 0 {
			t.Errorf("%s went first", order)
		}
		r.Leave("a", 6)
		synctest.Wait()
		r.Leave("b", 10)
		synctest.Wait()
		if got := fmt.Sprint(order); got != "[b c]" || r.Taken() != 2 {
			t.Errorf("admitted %s, %d seats are taken", got, r.Taken())
		}
	})
}

// One user leaves seats for the others, and its own waiting requests do not block them.
func TestUserLeavesSeatsForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := fair.New(fair.Config{Seats: 10, PerUser: 5, Queue: 10, Wait: time.Minute})
		if !r.Enter(t.Context(), "noisy", 20) || r.Taken() != 5 {
			t.Errorf("%d seats are taken", r.Taken())
		}
		ended := make(chan bool)
		go func() { ended <- r.Enter(t.Context(), "noisy", 1) }()
		synctest.Wait()
		from := time.Now()
		if !r.Enter(t.Context(), "quiet", 5) || time.Since(from) > 0 {
			t.Errorf("quiet waited for %s", time.Since(from))
		}
		r.Leave("noisy", 20)
		if !<-ended || r.Taken() != 6 {
			t.Errorf("%d seats are taken", r.Taken())
		}
	})
}
