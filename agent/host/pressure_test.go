package host_test

import (
	"context"
	"testing"
	"time"

	"monopod/agent/host"
	"monopod/testdata/harness"
)

// With any kernel the watch ends with its context, and before that only with an error.
func TestWatchMemoryEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- host.WatchMemory(ctx, func() {}) }()
	select {
	case err := <-done:
		if err == nil {
			t.Fatal("ended by itself, without a reason")
		}
		t.Skipf("this kernel gives no notice of memory pressure: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(harness.Bound):
		t.Fatal("does not end")
	}
}
