package credentials

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Table contains values of pods by key, and the times of their renewals. The zero Table is empty. It is safe for
// concurrent use.
type Table[K comparable, V any] struct {
	mu   sync.Mutex // guards pods
	pods map[types.UID]map[K]entry[V]
}

type entry[V any] struct {
	value V
	due   time.Time
}

// Get returns a value of a pod and the time of its renewal; ok reports whether there is one.
func (t *Table[K, V]) Get(pod types.UID, key K) (value V, due time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.pods[pod][key]
	return e.value, e.due, ok
}

// Put stores a value of a pod and the time of its renewal.
func (t *Table[K, V]) Put(pod types.UID, key K, value V, due time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods == nil {
		t.pods = map[types.UID]map[K]entry[V]{}
	}
	if t.pods[pod] == nil {
		t.pods[pod] = map[K]entry[V]{}
	}
	t.pods[pod][key] = entry[V]{value, due}
}

// Due reports whether a value of the pod must be renewed.
func (t *Table[K, V]) Due(pod types.UID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.pods[pod] {
		if !now.Before(e.due) {
			return true
		}
	}
	return false
}

// All returns the values of all pods.
func (t *Table[K, V]) All() (all []V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, entries := range t.pods {
		for _, e := range entries {
			all = append(all, e.value)
		}
	}
	return all
}

// Forget drops the values of a removed pod.
func (t *Table[K, V]) Forget(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, pod)
}
