package follow

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestJumps: a jump of the wall clock wakes the keys that wait for a time, and no others.
func TestJumps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := deps(t, &feed{})
		d.Jumps = &Jumps{}
		runs := map[string]int{}
		start(t, New(d,
			Config[string]{Name: "test", Start: []string{"hour", "done"},
				Reconcile: func(_ context.Context, key string) (time.Duration, error) {
					runs[key]++
					if key == "hour" {
						return time.Hour, nil
					}
					return 0, nil
				}}))
		jumps := make(chan struct{})
		go d.Jumps.Run(t.Context(), jumps)
		settle(time.Second)
		jumps <- struct{}{}
		settle(time.Second)
		if runs["hour"] != 2 || runs["done"] != 1 {
			t.Errorf("runs: %v, want the waiting key twice and the other one once", runs)
		}
		close(jumps)
	})
}
