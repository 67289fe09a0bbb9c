package kernel

import (
	"context"
	"testing"
	"time"

	"monopod/testdata/harness"
)

// Nothing is sent while the clock only runs; the watch ends with its context.
func TestWatchClockEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	jumps := WatchClock(ctx)
	select {
	case _, open := <-jumps:
		t.Fatalf("a jump, or the end: open is %v", open)
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
