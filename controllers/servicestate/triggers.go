package servicestate

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/follow"
	"monopod/controllers/podstate"
)

// Triggers computes the annotation endpoints.kubernetes.io/last-change-trigger-time. It is safe for concurrent
// use, but not for the same Service.
type Triggers struct {
	mu sync.Mutex // guards of
	of map[follow.Key]triggers
}

// triggers contains the state of a Service at its last sync.
type triggers struct {
	service time.Time
	pods    map[string]time.Time // time of the last change of readiness, by name
}

// NewTriggers returns an empty Triggers.
func NewTriggers() *Triggers { return &Triggers{of: map[follow.Key]triggers{}} }

// Next returns the time of the earliest change since the last call for the Service, zero if there is none: a pod became
// ready or unready, or the Service was created.
func (t *Triggers) Next(s *corev1.Service, pods []*corev1.Pod) time.Time {
	key := follow.KeyOf(s)
	t.mu.Lock()
	last, known := t.of[key]
	t.mu.Unlock()
	next := triggers{service: s.CreationTimestamp.Time, pods: make(map[string]time.Time, len(pods))}
	var earliest time.Time
	changed := func(at, before time.Time) {
		if at.After(before) && (earliest.IsZero() || at.Before(earliest)) {
			earliest = at
		}
	}
	changed(next.service, last.service)
	for _, p := range pods {
		if c := podstate.Condition(p, corev1.PodReady); c != nil {
			next.pods[p.Name] = c.LastTransitionTime.Time
			changed(c.LastTransitionTime.Time, last.pods[p.Name])
		}
	}
	if known && next.service.Equal(last.service) && maps.Equal(next.pods, last.pods) {
		return earliest
	}
	t.mu.Lock()
	t.of[key] = next
	t.mu.Unlock()
	if !known {
		return next.service
	}
	return earliest
}

// Forget removes a Service.
func (t *Triggers) Forget(key follow.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, key)
}

// Stamp sets or removes the annotation. It may return the given map.
func Stamp(annotations map[string]string, at time.Time) map[string]string {
	if at.IsZero() {
		delete(annotations, corev1.EndpointsLastChangeTriggerTime)
		return annotations
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[corev1.EndpointsLastChangeTriggerTime] = at.UTC().Format(time.RFC3339Nano)
	return annotations
}
