package backoff

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

// Retry is the pause before the next attempt of one thing: First, doubled up to Most
// while it keeps failing. It is not safe for concurrent use.
type Retry struct {
	First, Most time.Duration // required

	steps *wait.Backoff
}

// Next returns the pause before the next attempt; the one after it is longer.
func (r *Retry) Next() time.Duration {
	if r.steps == nil {
		r.steps = &wait.Backoff{Duration: r.First, Factor: 2, Cap: r.Most, Steps: math.MaxInt}
	}
	return r.steps.Step()
}

// Reset makes the next pause the first one again.
func (r *Retry) Reset() { r.steps = nil }

// Ran resets what ran for longer than Most before it failed: it was well.
func (r *Retry) Ran(d time.Duration) {
	if d > r.Most {
		r.Reset()
	}
}

// Wait pauses before the next attempt; false: ctx has ended.
func (r *Retry) Wait(ctx context.Context, clk clock.Clock) bool { return Sleep(ctx, clk, r.Next()) }
