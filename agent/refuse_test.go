package agent

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/images/image"
	"monopod/agent/pod/status"
	"monopod/agent/pod/statuswriter"
	"monopod/agent/storage/claims"
)

// counter counts the events that it is told.
type counter struct{ told int }

func (c *counter) Reference(corev1.ObjectReference, string, string, string, ...any) { c.told++ }

// added is the worker of a pod that has to wait for room, so that it does not look yet.
func added(t *testing.T, v verdict) (*worker, *counter) {
	t.Helper()
	events := &counter{}
	a := &Agent{
		Deps: Deps{Recorder: events, Clock: clock.RealClock{}}, log: zap.NewNop(), pods: map[types.UID]*worker{}, names: map[types.NamespacedName]*worker{}, desk: newDesk(),
		status: &statuswriter.Writer{}, images: &image.Puller{}, claims: &claims.Claims{},
	}
	v.room = []*worker{newWorker(a, &corev1.Pod{})}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); a.workers.Wait() })
	a.add(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}, func(context.Context, *worker) verdict { return v }, func(*inbox) {})
	for _, job := range a.desk.take() {
		job()
	}
	return a.worker("u"), events
}

// A pod that was not let in, or is evicted, is not evicted for another reason: neither
// before its worker has taken notice, nor while that waits for the runtime. Its status
// and its events would tell of two.
func TestRefusedIsNotEvicted(t *testing.T) {
	t.Parallel()
	why, grace := &status.Failure{Reason: "Evicted", Message: "first"}, time.Second
	for name, c := range map[string]struct {
		verdict verdict
		refuse  func(*worker) bool
		grace   *time.Duration
		events  int
	}{
		"not let in":                    {verdict{refused: why}, func(*worker) bool { return true }, nil, 0},
		"not let in when there is room": {verdict{}, func(w *worker) bool { return w.refuse(why, nil) }, nil, 0},
		"evicted":                       {verdict{}, func(w *worker) bool { return w.Evict(why, grace) }, &grace, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, events := added(t, c.verdict)
			if !c.refuse(w) {
				t.Fatal("a pod that runs is not refused")
			}
			later := &status.Failure{Reason: "Evicted", Message: "later"}
			if w.Evict(later, 0) {
				t.Error("evicted before the worker took notice")
			}
			w.open(func() {})
			if w.Evict(later, 0) {
				t.Error("evicted while the worker looks")
			}
			w.open(func() {})
			if w.failure != why || (w.hurry == nil) != (c.grace == nil) || w.hurry != nil && *w.hurry != *c.grace || events.told != c.events {
				t.Errorf("it ends for %v within %v, %d events", w.failure, w.hurry, events.told)
			}
		})
	}
}
