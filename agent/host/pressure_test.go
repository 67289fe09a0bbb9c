package host_test

import (
	"context"
	"testing"
	"time"

	"monopod/agent/host"
	"monopod/testdata/harness"
)

// On every kernel, WatchMemory returns when its context ends, and earlier only with an error.
func TestWatchMemoryEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- host.WatchMemory(ctx, func() {}) }()
	select {
	case err := <-done:
		if err == nil {
			t.Fatal("WatchMemory returned early without an error")
		}
		t.Skipf("skipped: this kernel does not notify of memory pressure: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(harness.Bound):
		t.Fatal("WatchMemory does not return")
	}
}
