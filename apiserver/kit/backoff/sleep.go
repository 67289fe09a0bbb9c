package backoff

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, clk clock.Clock, d time.Duration) bool {
	timer := clk.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
