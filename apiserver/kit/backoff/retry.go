package backoff

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

// Retry computes the pauses between attempts of one operation: First, doubling up to Most while it fails. It is not
// safe for concurrent use.
type Retry struct {
	First, Most time.Duration // required

	steps *wait.Backoff
}

// Next returns the pause before the next attempt.
func (r *Retry) Next() time.Duration {
	if r.steps == nil {
		r.steps = &wait.Backoff{Duration: r.First, Factor: 2, Cap: r.Most, Steps: math.MaxInt}
	}
	return r.steps.Step()
}

// Reset makes the next pause First again.
func (r *Retry) Reset() { r.steps = nil }

// Ran resets the pause if the operation ran for longer than Most before it failed.
func (r *Retry) Ran(d time.Duration) {
	if d > r.Most {
		r.Reset()
	}
}

// Wait pauses before the next attempt. It returns false if ctx ends first.
func (r *Retry) Wait(ctx context.Context, clk clock.Clock) bool { return Sleep(ctx, clk, r.Next()) }
