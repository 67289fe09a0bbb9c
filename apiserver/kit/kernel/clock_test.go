package kernel

import (
	"context"
	"testing"
	"time"

	"monopod/testdata/harness"
)

// The watch sends nothing while the clock does not jump, and ends with its context.
func TestWatchClockEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	jumps := WatchClock(ctx)
	select {
	case _, open := <-jumps:
		t.Fatalf("the watch reported a jump or ended: open is %v", open)
	default:
	}
	cancel()
	select {
	case _, open := <-jumps:
		if open {
			t.Error("a jump")
		}
	case <-time.After(harness.Bound):
		t.Fatal("the watch does not end")
	}
}
