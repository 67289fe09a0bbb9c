// Active pods are tried next, the most urgent first. A pod that no node fits waits for a change that may help it. If
// that comes before its backoff has ended, pods without a backoff go first. The caller locks a Queue.

package scheduler

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"monopod/apiserver/kit/follow"
	"monopod/controllers/scheduler/cluster"
	"monopod/controllers/scheduler/rules"
)

// The times are upstream's. The backoff doubles with each attempt. A waiting pod is retried after MaxWait even without
// a change.
const (
	FirstBackoff = time.Second
	MaxBackoff   = 10 * time.Second
	MaxWait      = 5 * time.Minute
)

// State is the part of the queue that contains a pod.
type State string

// The states have the names of upstream's queues.
const (
	Active        State = "active"
	Backoff       State = "backoff"
	Unschedulable State = "unschedulable"
	Gated         State = "gated"
	// Busy means that the pod is being tried or bound.
	Busy State = "busy"
)

// States returns the states that upstream counts as pending.
func States() []State { return []State{Active, Backoff, Unschedulable, Gated} }

// Entry is a pod in the queue.
type Entry struct {
	*cluster.Pod
	Key      follow.Key
	State    State
	Since    time.Time // when the pod could first be tried
	Attempts int

	rejectedBy rules.Set // rules that refused the pod
	fails      int       // attempts since the pod was last changed
	failed     bool      // the last attempt ended with an error: no retry before ready
	tried      time.Time // end of the last attempt
	ready      time.Time // end of the backoff
	changed    bool      // the pod was changed while it was busy
	order      int64     // in which pods became active
	heap       *entries  // heap that contains the entry
	index      int       // index in the heap
}

// Queue contains the pods without a node.
type Queue struct {
	entries map[follow.Key]*Entry
	active  entries // most urgent first
	backoff entries // most urgent first; without pods whose last attempt ended with an error
	waiting map[follow.Key]*Entry
	refused [32]int // number of waiting pods, by the rule that refused them
	counts  map[State]int
	order   int64
}

// newQueue returns an empty queue.
func newQueue() *Queue {
	return &Queue{entries: map[follow.Key]*Entry{}, waiting: map[follow.Key]*Entry{}, counts: map[State]int{},
		active: entries{before: moreUrgent}, backoff: entries{before: moreUrgent}}
}

func moreUrgent(a, b *Entry) bool {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.order, b.order)) < 0
}

// Get returns a pod's entry, or nil.
func (q *Queue) Get(key follow.Key) *Entry { return q.entries[key] }

// Len returns the number of pods in a state.
func (q *Queue) Len(s State) int { return q.counts[s] }

// Set adds a pod, or replaces a pod after a change because of which another attempt may succeed. It returns false if
// the pod is gated or busy; a busy pod is retried if its attempt fails.
func (q *Queue) Set(key follow.Key, pod *cluster.Pod, now time.Time) bool {
	e := q.entries[key]
	if e == nil {
		e = &Entry{Key: key, Since: now}
		q.entries[key] = e
	}
	e.Pod, e.fails, e.failed = pod, 0, false
	if e.State == Busy {
		e.changed = true
		return false
	}
	if e.State == Gated {
		e.Since = now
	}
	q.move(e, q.initialState(e))
	return e.State == Active
}

// initialState returns the state of a new or changed pod.
func (q *Queue) initialState(e *Entry) State {
	if len(e.Pod.Spec.SchedulingGates) > 0 {
		return Gated
	}
	return Active
}

// Refresh replaces a pod after a change that does not affect attempts.
func (q *Queue) Refresh(key follow.Key, pod *cluster.Pod) {
	if e := q.entries[key]; e != nil {
		e.Pod = pod
	}
}

// Remove removes a pod.
func (q *Queue) Remove(key follow.Key) {
	if e := q.entries[key]; e != nil {
		q.leave(e)
		delete(q.entries, key)
	}
}

// Pop returns the most urgent active pod and makes it busy. If there is none, it returns a pod in backoff whose last
// attempt did not end with an error, or nil.
func (q *Queue) Pop() *Entry {
	e := q.Top()
	if e != nil {
		q.move(e, Busy)
		e.changed = false
		e.Attempts++
	}
	return e
}

// Top returns the pod that Pop would return.
func (q *Queue) Top() *Entry {
	switch {
	case len(q.active.all) > 0:
		return q.active.all[0]
	case len(q.backoff.all) > 0:
		return q.backoff.all[0]
	}
	return nil
}

// Refused makes a busy pod wait for a change that may end the refusal of one of the rules.
func (q *Queue) Refused(e *Entry, by rules.Set, now time.Time) {
	if q.entries[e.Key] != e {
		return // the pod was removed
	}
	e.fails++
	e.rejectedBy, e.tried, e.failed, e.ready = by, now, false, now.Add(backoff(e.fails))
	if e.changed {
		q.move(e, q.initialState(e))
		return
	}
	q.move(e, Unschedulable)
}

// Failed makes a pod wait for its backoff after an error.
func (q *Queue) Failed(e *Entry, now time.Time) {
	if q.entries[e.Key] != e {
		return // the pod was removed
	}
	e.fails++
	e.tried, e.failed, e.ready = now, true, now.Add(backoff(e.fails))
	q.move(e, Backoff)
}

// After returns the time until a waiting pod is retried without a change; 0 if it does not wait.
func (q *Queue) After(key follow.Key, now time.Time) time.Duration {
	switch e := q.entries[key]; {
	case e == nil:
		return 0
	case e.State == Backoff:
		return max(e.ready.Sub(now), time.Nanosecond)
	case e.State == Unschedulable:
		return max(e.tried.Add(MaxWait).Sub(now), time.Nanosecond)
	}
	return 0
}

// backoff returns the delay after the n-th failed attempt.
func backoff(n int) time.Duration {
	if n > 4 {
		return MaxBackoff
	}
	return min(FirstBackoff<<(n-1), MaxBackoff)
}

// Due makes a pod active whose backoff has ended, or that has waited for MaxWait.
func (q *Queue) Due(key follow.Key, now time.Time) {
	e := q.entries[key]
	switch {
	case e == nil:
	case e.State == Backoff && !e.ready.After(now), e.State == Unschedulable && now.Sub(e.tried) >= MaxWait:
		q.move(e, Active)
	}
}

// Wake wakes the waiting pods for which helps returns true; helps gets the rules that refused the pod.
func (q *Queue) Wake(now time.Time, helps func(p *cluster.Pod, rejected rules.Set) bool) []follow.Key {
	var woken []*Entry
	for _, e := range q.waiting {
		if helps(e.Pod, e.rejectedBy) {
			woken = append(woken, e)
		}
	}
	slices.SortFunc(woken, func(a, b *Entry) int { return cmp.Compare(a.order, b.order) })
	keys := make([]follow.Key, len(woken))
	for i, e := range woken {
		keys[i] = e.Key
		if e.ready.After(now) {
			q.move(e, Backoff)
		} else {
			q.move(e, Active)
		}
	}
	return keys
}

// Refusals returns the number of waiting pods that the i-th rule refused.
func (q *Queue) Refusals(i int) int { return q.refused[i] }

// count adds by to the refusals of a pod's rules.
func (q *Queue) count(e *Entry, by int) {
	for i := range q.refused {
		if e.rejectedBy&(1<<i) != 0 {
			q.refused[i] += by
		}
	}
}

// move changes a pod's state.
func (q *Queue) move(e *Entry, to State) {
	q.leave(e)
	e.State = to
	q.counts[to]++
	switch to {
	case Active:
		if e.order == 0 {
			q.order++
			e.order = q.order
		}
		e.heap = &q.active
		heap.Push(e.heap, e)
	case Backoff:
		if !e.failed {
			e.heap = &q.backoff
			heap.Push(e.heap, e)
		}
	case Unschedulable:
		q.waiting[e.Key] = e
		q.count(e, 1)
	}
}

func (q *Queue) leave(e *Entry) {
	if e.State == "" {
		return
	}
	q.counts[e.State]--
	switch e.State {
	case Active, Backoff:
		if e.heap != nil {
			heap.Remove(e.heap, e.index)
			e.heap = nil
		}
	case Unschedulable:
		delete(q.waiting, e.Key)
		q.count(e, -1)
	}
	e.State = ""
}

// entries implements heap.Interface.
type entries struct {
	all    []*Entry
	before func(a, b *Entry) bool
}

var _ heap.Interface = (*entries)(nil)

// Len implements heap.Interface.
func (h *entries) Len() int { return len(h.all) }

// Less implements heap.Interface.
func (h *entries) Less(i, j int) bool { return h.before(h.all[i], h.all[j]) }

// Swap implements heap.Interface.
func (h *entries) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	h.all[i].index, h.all[j].index = i, j
}

// Push implements heap.Interface.
func (h *entries) Push(x any) {
	e := x.(*Entry)
	e.index = len(h.all)
	h.all = append(h.all, e)
}

// Pop implements heap.Interface.
func (h *entries) Pop() any {
	last := h.all[len(h.all)-1]
	h.all[len(h.all)-1] = nil
	h.all = h.all[:len(h.all)-1]
	return last
}
