// Package idlecache caches large values that are rarely used.
package idlecache

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Value is built on first use and released after a time without use, so that an installation that never uses it needs
// no memory for it. It is safe for concurrent use, and has a timer only while it holds a value.
type Value[T any] struct {
	clock clock.WithDelayedExecution
	idle  time.Duration
	build func() (T, error)

	mu    sync.Mutex // guards the fields below; held while build runs, so that it runs once
	value *T
	used  time.Time
}

// New returns a Value that build builds and that is released after idle without use.
func New[T any](clock clock.WithDelayedExecution, idle time.Duration, build func() (T, error)) *Value[T] {
	return &Value[T]{clock: clock, idle: idle, build: build}
}

// Get returns the value. Errors are not cached: the next Get builds again.
func (v *Value[T]) Get() (T, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.used = v.clock.Now()
	if v.value != nil {
		return *v.value, nil
	}
	value, err := v.build()
	if err != nil {
		return value, err
	}
	v.value = &value
	v.clock.AfterFunc(v.idle, v.release)
	return value, nil
}

// Held reports whether there is a value now.
func (v *Value[T]) Held() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value != nil
}

// Release releases the value at once.
func (v *Value[T]) Release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value = nil
}

// release releases the value unless it was used meanwhile; then it checks again when that use is old enough.
func (v *Value[T]) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if left := v.idle - v.clock.Since(v.used); left > 0 && v.value != nil {
		v.clock.AfterFunc(left, v.release)
		return
	}
	v.value = nil
}
