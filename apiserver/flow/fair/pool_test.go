package fair_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"monopod/apiserver/flow/fair"
)

// A level has its minimum although another one borrows all other seats, and gets its nominal share before the other
// gets more.
func TestLevelsBorrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewPool(nil)
		low, high := p.Level(), p.Level()
		cfg := fair.LevelConfig{Min: 2, Nominal: 5, Max: 10, Length: 20, Wait: time.Minute}
		p.Configure(10, map[*fair.Level]fair.LevelConfig{low: cfg, high: cfg})
		for i := range 8 {
			if !low.TryEnter("a", 1) {
				t.Fatalf("seat %d of 8 cannot be borrowed", i)
			}
		}
		if low.TryEnter("a", 1) {
			t.Error("the minimum of another level was borrowed")
		}
		if got := high.State().Limit; got != 2 {
			t.Errorf("limit of the other level is %d", got)
		}
		for i, want := range []bool{true, true, false} {
			if high.TryEnter("b", 1) != want {
				t.Errorf("request %d of the other level, which has a minimum of 2: %t", i, !want)
			}
		}
		var order []string
		for _, c := range []struct {
			level *fair.Level
			user  string
		}{{low, "low"}, {high, "high"}, {high, "high"}, {high, "high"}, {high, "high"}} {
			go func() {
				if c.level.Enter(t.Context(), fair.Flow{User: c.user}, 1) == fair.Admitted {
					order = append(order, c.user)
				}
			}()
			synctest.Wait()
		}
		for range 5 {
			low.Leave("a", 1)
			synctest.Wait()
		}
		if got := fmt.Sprint(order); got != "[high high high low high]" {
			t.Errorf("admitted %s", got)
		}
	})
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewPool(nil)
		rejects, queues := p.Level(), p.Level()
		p.Configure(2, map[*fair.Level]fair.LevelConfig{
			rejects: {Min: 1, Nominal: 1, Max: 1},
			queues:  {Min: 1, Nominal: 1, Max: 1, Queues: 4, Hand: 2, Length: 1, Wait: time.Second},
		})
		flow := fair.Flow{User: "a", Schema: "s", Distinguisher: "a"}
		for _, l := range []*fair.Level{rejects, queues} {
			if got := l.Enter(t.Context(), flow, 1); got != fair.Admitted {
				t.Fatal(got)
			}
		}
		if got := rejects.Enter(t.Context(), flow, 1); got != fair.Limited {
			t.Errorf("without queues: %q", got)
		}
		outcomes := make(chan fair.Outcome, 3)
		for range 3 { // the two queues of the flow's hand have room for two of them
			go func() { outcomes <- queues.Enter(t.Context(), flow, 1) }()
			synctest.Wait()
		}
		if got := <-outcomes; got != fair.Full {
			t.Errorf("with full queues: %q", got)
		}
		if s := queues.State(); s.Queues != 2 || len(s.Waiting) != 2 || s.Waiting[0].Queue == s.Waiting[1].Queue {
			t.Errorf("%+v", s)
		}
		for range 2 {
			if got := <-outcomes; got != fair.TimedOut {
				t.Errorf("after a second: %q", got)
			}
		}
		if s := queues.State(); s.Dispatched != 1 || s.Rejected != 1 || s.TimedOut != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// More seats admit waiting requests. Fewer seats take effect when requests end. A removed level disappears with its
// last request.
func TestConfigureAdjustsLevelsInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewPool(nil)
		a, b := p.Level(), p.Level()
		of := func(n int) fair.LevelConfig {
			return fair.LevelConfig{Min: n, Nominal: n, Max: n, Length: 10, Wait: time.Minute}
		}
		p.Configure(2, map[*fair.Level]fair.LevelConfig{a: of(1), b: of(1)})
		a.TryEnter("x", 1)
		b.TryEnter("x", 1)
		waited := make(chan fair.Outcome, 2)
		go func() { waited <- a.Enter(t.Context(), fair.Flow{User: "x"}, 1) }()
		go func() { waited <- b.Enter(t.Context(), fair.Flow{User: "x"}, 1) }()
		synctest.Wait()
		p.Configure(2, map[*fair.Level]fair.LevelConfig{a: of(2)})
		if <-waited != fair.Admitted {
			t.Error("a waiting request was not admitted to the larger level")
		}
		b.Leave("x", 1)
		if <-waited != fair.Admitted {
			t.Error("a request of the level that ended was not admitted")
		}
		if s := b.State(); !s.Ended || s.Seats != 1 {
			t.Errorf("%+v", s)
		}
		b.Leave("x", 1)
		a.Leave("x", 1)
		a.Leave("x", 1)
		p.Configure(0, map[*fair.Level]fair.LevelConfig{a: of(1)})
		for range 100 {
			if !a.TryEnter("x", 1) {
				t.Fatal("refused without a limit")
			}
		}
	})
}

// A user who has the maximum of seats does not block another user in the same queue.
func TestUsersInOneQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewPool(nil)
		l := p.Level()
		p.Configure(2,
			map[*fair.Level]fair.LevelConfig{l: {Nominal: 2, Max: 2, PerUser: 1, Queues: 1, Hand: 1, Length: 10,
				Wait: time.Minute}})
		l.TryEnter("noisy", 1)
		go l.Enter(t.Context(), fair.Flow{User: "noisy"}, 1)
		synctest.Wait()
		from := time.Now()
		if l.Enter(t.Context(), fair.Flow{User: "quiet"}, 1) != fair.Admitted || time.Since(from) > 0 {
			t.Errorf("quiet waited for %s", time.Since(from))
		}
		l.Leave("noisy", 1)
		synctest.Wait()
		if s := l.State(); s.Seats != 2 || len(s.Waiting) > 0 {
			t.Errorf("%+v", s)
		}
	})
}
