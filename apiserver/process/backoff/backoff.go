// Package backoff spaces out attempts at what keeps failing.
package backoff

import (
	"time"
)

// Kubelet's figures for containers that crash and images that do not come:
// 10 s, doubled up to 300 s, forgotten 600 s after the last attempt.
const (
	Initial = 10 * time.Second
	Max     = 300 * time.Second
	Forget  = 2 * Max
)

// Kubelet's figures for what the API does not take, a node's registration first of
// all: 100 ms, doubled up to 7 s.
const (
	WriteInitial = 100 * time.Millisecond
	WriteMax     = 7 * time.Second
)

// Backoff is the delays of some keys. The zero value works. It is not safe for
// concurrent use.
type Backoff struct {
	entries map[string]*entry
}

type entry struct {
	delay time.Duration
	last  time.Time // of the last attempt
}

// Remaining is how long key must still wait when its last failure was at
// failed; 0 when it may try now. Delay is the whole wait it is in.
func (b *Backoff) Remaining(key string, failed, now time.Time) (remaining, delay time.Duration) {
	e := b.entries[key]
	if e == nil || failed.Sub(e.last) > Forget {
		return 0, 0
	}
	return max(0, failed.Add(e.delay).Sub(now)), e.delay
}

// Attempt notes that key tries again after a failure at failed, so the next
// failure waits longer; the first waits Initial.
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

// Forget drops a key: its next failure waits Initial again.
func (b *Backoff) Forget(key string) { delete(b.entries, key) }
