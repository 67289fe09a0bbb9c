package eviction

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Met is a met threshold.
type Met struct {
	Threshold
	Amount Amount
}

// Tracker records since when thresholds are met. Its zero value works. It is not safe for concurrent use.
type Tracker struct {
	since map[key]time.Time                      // start of the current time in which a threshold is met
	last  map[corev1.NodeConditionType]time.Time // time of the last observation of a condition
}

type key struct {
	signal Signal
	soft   bool
}

// Update processes the observations at now. due are the thresholds that require evictions now, hard ones before soft
// ones, in the order of Signals. pressure are the node's conditions, which are kept for the transition period.
func (t *Tracker) Update(p Policy, seen Observations, now time.Time) (due []Met, pressure []corev1.NodeConditionType) {
	since, last := map[key]time.Time{}, map[corev1.NodeConditionType]time.Time{}
	maps.Copy(last, t.last)
	for _, th := range p.Thresholds {
		amount, ok := seen[th.Signal]
		k := key{th.Signal, th.Soft}
		first, was := t.since[k]
		if !ok || amount.Free >= th.bound(amount.Total, was) {
			continue
		}
		if !was {
			first = now
		}
		since[k] = first
		last[th.Signal.Condition()] = now
		if now.Sub(first) >= th.Grace {
			due = append(due, Met{th, amount})
		}
	}
	t.since, t.last = since, last
	slices.SortStableFunc(due, func(a, b Met) int {
		if a.Soft != b.Soft {
			if a.Soft {
				return 1
			}
			return -1
		}
		return cmp.Compare(slices.Index(Signals(), a.Signal), slices.Index(Signals(), b.Signal))
	})
	for c, at := range last {
		if at.Equal(now) || now.Sub(at) < p.TransitionPeriod {
			pressure = append(pressure, c)
		}
	}
	slices.Sort(pressure)
	return due, pressure
}

// bound returns the amount that must be free. It includes Reclaim if the threshold was met before.
func (th *Threshold) bound(total int64, was bool) int64 {
	bound := th.Value.Of(total)
	if was {
		bound += th.Reclaim.Of(total)
	}
	return bound
}

// UntilThreshold returns the bytes of memory that may be used before the next threshold is met; 0: there is no
// threshold.
func (p Policy) UntilThreshold(seen Observations) int64 {
	var left int64
	amount := seen[Memory]
	for _, t := range p.Thresholds {
		if more := amount.Free - t.Value.Of(amount.Total); t.Signal == Memory && more > 0 && (left == 0 || more < left) {
			left = more
		}
	}
	return left
}
