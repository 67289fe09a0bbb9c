package pod

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/agent/podapi/status"
)

// waits returns a pod whose admission waits for a victim, so that its worker does not start it.
func waits(t *testing.T, v Verdict) (p *Pod, events *int) {
	t.Helper()
	events = new(int)
	node := &Node{Clock: clock.RealClock{}, Log: zap.NewNop()}
	node.Hooks.Event = func(*corev1.Pod, string, string, string, string, ...any) { *events++ }
	ctx, cancel := context.WithCancel(context.Background())
	v.Victims = []*Pod{New(ctx, node, &corev1.Pod{}, Options{})}
	p = New(ctx, node, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}, Options{})
	over := make(chan struct{})
	go func() { defer close(over); p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-over })
	p.Decided(v)
	return p, events
}

// A pod that was rejected or evicted is not evicted again, neither before nor after its worker has taken the message.
// Otherwise, its status and events would contain two reasons.
func TestRefusedIsNotEvicted(t *testing.T) {
	t.Parallel()
	why, grace := &status.Failure{Reason: "Evicted", Message: "first"}, time.Second
	for name, c := range map[string]struct {
		verdict Verdict
		refuse  func(*Pod) bool
		grace   *time.Duration
		events  int
	}{
		"refused":                  {Verdict{Refused: why}, func(*Pod) bool { return true }, nil, 0},
		"refused despite capacity": {Verdict{}, func(p *Pod) bool { return p.inbox.fail(why, nil) }, nil, 0},
		"evicted":                  {Verdict{}, func(p *Pod) bool { return p.Evict(why, grace) }, &grace, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, events := waits(t, c.verdict)
			if !c.refuse(p) {
				t.Fatal("the pod was not rejected or evicted")
			}
			later := &status.Failure{Reason: "Evicted", Message: "later"}
			if p.Evict(later, 0) {
				t.Error("evicted again before the worker took the message")
			}
			w := p.worker
			w.receive(p.inbox.take(func() {}))
			if p.Evict(later, 0) {
				t.Error("evicted again after the worker took the message")
			}
			w.receive(p.inbox.take(func() {}))
			if d := w.desired; d.failure != why || (d.grace == nil) != (c.grace == nil) ||
				d.grace != nil && *d.grace != *c.grace || *events != c.events {
				t.Errorf("failure %v, grace period %v, %d events", d.failure, d.grace, *events)
			}
		})
	}
}
