// Package eventttl deletes Events when their TTL after their last occurrence has passed, and the oldest ones if there
// are too many.
package eventttl

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Name of the controller.
const Name = "eventttl"

// minSweep is the minimum time between two sweeps for age, so that one sweep deletes events that expire shortly after
// each other.
const minSweep = time.Minute

// Config of the controller.
type Config struct {
	TTL time.Duration // --event-ttl; 0 means upstream's 1 h
	Max int           // maximum number of events, 0 means 4096
}

// Controller deletes old events.
type Controller struct {
	deps follow.Deps
	cfg  Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, cfg Config) *Controller {
	cfg.TTL = cmp.Or(cfg.TTL, time.Hour)
	cfg.Max = cmp.Or(cfg.Max, 4096)
	return &Controller{deps: deps, cfg: cfg}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	var count atomic.Int64 // number of events according to the watch
	return follow.New(c.deps, follow.Config[string]{
		Name: Name,
		Sources: []follow.Source[string]{{
			Selector: client.Selector{Resource: client.Events},
			Keys:     follow.Plain(func(old, new client.Object) []string { return c.counted(&count, old, new) }),
		}},
		Reconcile: c.sweep,
	}).Run(ctx)
}

// counted wakes the sweep for the first event, after which the sweep schedules itself, and when there are too many
// events.
func (c *Controller) counted(count *atomic.Int64, old, new client.Object) []string {
	switch {
	case new == nil:
		count.Add(-1)
	case old == nil:
		if n := count.Add(1); n == 1 || n > int64(c.cfg.Max) {
			return []string{"sweep"}
		}
	}
	return nil
}

// sweep deletes expired and excess events, and runs again when the oldest remaining one expires.
func (c *Controller) sweep(ctx context.Context, _ string) (time.Duration, error) {
	events, err := client.List[*corev1.Event](ctx, c.deps.Client, client.Selector{})
	if err != nil {
		return 0, err
	}
	now := c.deps.Clock.Now()
	goes, stays := divide(events, now.Add(-c.cfg.TTL), c.cfg.Max)
	for _, e := range goes {
		_, err := c.deps.Client.Delete(ctx, client.RefOf(e), metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &e.UID, ResourceVersion: &e.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return 0, err
		}
	}
	if len(stays) == 0 {
		return 0, nil
	}
	return max(minSweep, happened(stays[0]).Add(c.cfg.TTL).Sub(now)), nil
}

// divide separates the events to delete from those to keep, oldest first. It deletes events before the limit and, if
// more than most remain, the oldest ones until 7/8 of most are left.
func divide(events []*corev1.Event, limit time.Time, most int) (goes, stays []*corev1.Event) {
	sorted := slices.Clone(events)
	slices.SortFunc(sorted, func(a, b *corev1.Event) int {
		return cmp.Or(happened(a).Compare(happened(b)), cmp.Compare(a.UID, b.UID))
	})
	n, _ := slices.BinarySearchFunc(sorted, limit, func(e *corev1.Event, t time.Time) int {
		if happened(e).After(t) {
			return 1
		}
		return -1
	})
	if len(sorted)-n > most {
		n = len(sorted) - (most - most/8)
	}
	return sorted[:n], sorted[n:]
}

// happened returns the time of the event's last occurrence.
func happened(e *corev1.Event) time.Time {
	last := e.CreationTimestamp.Time
	times := []time.Time{e.LastTimestamp.Time, e.EventTime.Time}
	if e.Series != nil {
		times = append(times, e.Series.LastObservedTime.Time)
	}
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
