package webhooks

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/backoff"
)

// failures logs failed calls of webhooks, at a growing distance for each webhook until it works again.
type failures struct {
	clock clock.PassiveClock
	log   *zap.Logger

	mu   sync.Mutex // guards webs
	webs map[string]*failing
}

// failing is a webhook that fails.
type failing struct {
	pause  backoff.Retry
	next   time.Time // of the next message
	silent int       // failures since the last message
}

func newFailures(clock clock.PassiveClock, log *zap.Logger) *failures {
	return &failures{clock: clock, log: log, webs: map[string]*failing{}}
}

// failed logs a failure of the hook, or counts it for the next message.
func (f *failures) failed(h *hook, err error, outcome string) {
	if silent, due := f.count(h.Name); due {
		f.log.Warn("failed calling an admission webhook", zap.String("webhook", h.Name),
			zap.String("configuration", h.configuration),
			zap.String("outcome", outcome), zap.Int("failuresSinceLastMessage", silent), zap.Error(err))
	}
}

// count counts a failure, and reports whether a message is due and how many failures had none.
func (f *failures) count(name string) (silent int, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.webs[name]
	if w == nil {
		w = &failing{pause: backoff.Retry{First: time.Second, Most: 10 * time.Minute}}
		f.webs[name] = w
	}
	now := f.clock.Now()
	if now.Before(w.next) {
		w.silent++
		return 0, false
	}
	silent, w.silent, w.next = w.silent, 0, now.Add(w.pause.Next())
	return silent, true
}

// worked makes the next failure of the hook a message again.
func (f *failures) worked(h *hook) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.webs, h.Name)
}

// keep forgets the webhooks that are not named.
func (f *failures) keep(names map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.webs {
		if !names[name] {
			delete(f.webs, name)
		}
	}
}
