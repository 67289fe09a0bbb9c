package scheduler

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/follow"
	"monopod/controllers/scheduler/cluster"
	"monopod/controllers/scheduler/rules"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func key(name string) follow.Key { return follow.Key{Namespace: "default", Name: name} }

func queuedPod(name string, priority int32, gates ...string) *cluster.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Priority: &priority}}
	for _, gate := range gates {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
	}
	return cluster.NewPod(p)
}

// drain pops all pods and returns their names.
func drain(q *Queue) string {
	var names []string
	for e := q.Pop(); e != nil; e = q.Pop() {
		names = append(names, e.Name)
	}
	return strings.Join(names, " ")
}

func always(*cluster.Pod, rules.Set) bool { return true }

func TestHighestPriorityIsFirst(t *testing.T) {
	t.Parallel()
	q := newQueue()
	q.Set(key("a"), queuedPod("a", 0), start)
	q.Set(key("b"), queuedPod("b", 5), start)
	q.Set(key("c"), queuedPod("c", 0), start)
	q.Set(key("d"), queuedPod("d", -5), start)
	q.Set(key("e"), queuedPod("e", 5), start)
	if got := drain(q); got != "b e a c d" {
		t.Errorf("order %s", got)
	}
}

func TestBackoffDoublesUpToTenSeconds(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 8 * time.Second,
		5: 10 * time.Second, 900: 10 * time.Second} {
		if got := backoff(n); got != want {
			t.Errorf("after attempt %d: %v, want %v", n, got, want)
		}
	}
}

func TestWokenPodWaitsForItsBackoff(t *testing.T) {
	t.Parallel()
	q := newQueue()
	q.Set(key("woken"), queuedPod("woken", 5), start)
	q.Refused(q.Pop(), 1, start)
	if q.Pop() != nil {
		t.Fatal("Pop returned a pod that was not woken")
	}
	q.Set(key("new"), queuedPod("new", 0), start)
	now := start.Add(time.Second / 2)
	if keys := q.Wake(now, always); len(keys) != 1 || q.Get(key("woken")).State != Backoff {
		t.Fatalf("woken: %v, state %s", keys, q.Get(key("woken")).State)
	}
	if after := q.After(key("woken"), now); after != time.Second/2 {
		t.Errorf("active after %v", after)
	}
	if got := drain(q); got != "new woken" {
		t.Errorf("order %s, want the pod without a failed attempt first", got)
	}
}

func TestWokenPodAfterBackoffIsOrderedByPriority(t *testing.T) {
	t.Parallel()
	for name, wake := range map[string]func(q *Queue){
		"woken after it":  func(q *Queue) { q.Wake(start.Add(time.Second), always) },
		"woken during it": func(q *Queue) { q.Wake(start, always); q.Due(key("woken"), start.Add(time.Second)) },
		"not woken":       func(q *Queue) { q.Due(key("woken"), start.Add(MaxWait)) },
	} {
		q := newQueue()
		q.Set(key("woken"), queuedPod("woken", 5), start)
		q.Refused(q.Pop(), 1, start)
		q.Set(key("new"), queuedPod("new", 0), start)
		wake(q)
		if got := drain(q); got != "woken new" {
			t.Errorf("%s: order %q", name, got)
		}
	}
	q := newQueue()
	q.Set(key("waits"), queuedPod("waits", 5), start)
	q.Refused(q.Pop(), 1, start)
	if q.Due(key("waits"), start.Add(MaxWait-1)); q.Pop() != nil {
		t.Error("Pop returned the pod before 5 minutes had passed")
	}
}

func TestFailedPodWaitsForItsBackoff(t *testing.T) {
	t.Parallel()
	q := newQueue()
	q.Set(key("a"), queuedPod("a", 0), start)
	q.Failed(q.Pop(), start)
	q.Wake(start, always)
	q.Due(key("a"), start.Add(time.Second-1))
	if q.Pop() != nil || q.Len(Backoff) != 1 {
		t.Fatal("Pop returned the pod during its backoff")
	}
	q.Due(key("a"), start.Add(time.Second))
	if e := q.Pop(); e == nil || e.Attempts != 2 {
		t.Errorf("after the backoff: %+v", e)
	}
}

func TestOnlyRejectingRulesAreAsked(t *testing.T) {
	t.Parallel()
	q := newQueue()
	for i, name := range []string{"a", "b", "c"} {
		q.Set(key(name), queuedPod(name, 0), start)
		q.Refused(q.Pop(), 1<<i|1<<5, start)
	}
	if q.Refusals(0) != 1 || q.Refusals(5) != 3 || q.Refusals(7) != 0 {
		t.Errorf("refusals %v", q.refused)
	}
	q.Wake(start.Add(time.Minute), func(_ *cluster.Pod, rejected rules.Set) bool { return rejected&2 != 0 })
	if got := drain(q); got != "b" || q.Refusals(1) != 0 || q.Refusals(5) != 2 {
		t.Errorf("woken: %q, refusals %v", got, q.refused)
	}
}

func TestGatedPodsAreNotTried(t *testing.T) {
	t.Parallel()
	q := newQueue()
	if q.Set(key("a"), queuedPod("a", 0, "wait"), start); q.Pop() != nil || q.Len(Gated) != 1 {
		t.Fatal("Pop returned a gated pod")
	}
	q.Wake(start.Add(time.Hour), always)
	q.Due(key("a"), start.Add(time.Hour))
	if q.Pop() != nil {
		t.Fatal("Wake or Due made a gated pod active")
	}
	q.Set(key("a"), queuedPod("a", 0), start.Add(time.Hour))
	if e := q.Pop(); e == nil || !e.Since.Equal(start.Add(time.Hour)) {
		t.Errorf("%+v, want Since to be the removal of the gate", e)
	}
}

func TestPodChangedDuringItsAttemptIsRetried(t *testing.T) {
	t.Parallel()
	q := newQueue()
	q.Set(key("a"), queuedPod("a", 0), start)
	e := q.Pop()
	q.Set(key("a"), queuedPod("a", 7), start)
	if q.Pop() != nil {
		t.Fatal("Pop returned a pod during its attempt")
	}
	q.Refused(e, 1, start)
	if e := q.Pop(); e == nil || e.Priority != 7 {
		t.Errorf("after the attempt: %+v", e)
	}
}

func TestRemovedPodIsNotRetried(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(q *Queue, e *Entry){
		"refused": func(q *Queue, e *Entry) { q.Refused(e, 1, start) },
		"failed":  func(q *Queue, e *Entry) { q.Failed(e, start) },
	} {
		q := newQueue()
		q.Set(key("a"), queuedPod("a", 0), start)
		e := q.Pop()
		q.Remove(key("a"))
		end(q, e)
		for _, s := range append(States(), Busy) {
			if q.Len(s) != 0 {
				t.Errorf("%s: %d pods %s", name, q.Len(s), s)
			}
		}
	}
}
