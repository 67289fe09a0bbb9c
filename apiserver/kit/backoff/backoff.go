// Package backoff delays retries of failing operations.
package backoff

import (
	"time"
)

// The kubelet's values for crashing containers and failing image pulls: 10 s, doubling up to 300 s, reset 600 s after
// the last attempt.
const (
	Initial = 10 * time.Second
	Max     = 300 * time.Second
	Forget  = 2 * Max
)

// The kubelet's values for failing API writes, such as the node's registration: 100 ms, doubling up to 7 s.
const (
	WriteInitial = 100 * time.Millisecond
	WriteMax     = 7 * time.Second
)

// Backoff contains the delays of several keys. The zero value is ready to use. It is not safe for concurrent
// use.
type Backoff struct {
	entries map[string]*entry
}

type entry struct {
	delay time.Duration
	last  time.Time // of the last attempt
}

// Remaining returns how long key must still wait after its last failure, at failed, or 0 if it may try now. delay is
// the whole wait.
func (b *Backoff) Remaining(key string, failed, now time.Time) (remaining, delay time.Duration) {
	e := b.entries[key]
	if e == nil || failed.Sub(e.last) > Forget {
		return 0, 0
	}
	return max(0, failed.Add(e.delay).Sub(now)), e.delay
}

// Attempt records that key tries again after a failure at failed, so that the next failure waits longer. The first
// failure waits Initial.
func (b *Backoff) Attempt(key string, failed, now time.Time) {
	if b.entries == nil {
		b.entries = map[string]*entry{}
	}
	e := b.entries[key]
	if e == nil || failed.Sub(e.last) > Forget {
		b.entries[key] = &entry{delay: Initial, last: now}
		return
	}
	e.delay, e.last = min(2*e.delay, Max), now
}

// Forget removes a key: its next failure waits Initial again.
func (b *Backoff) Forget(key string) { delete(b.entries, key) }
