package webhooks

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/backoff"
)

// failureLog logs failed calls of webhooks. The interval between the messages about a webhook grows until a call
// succeeds.
type failureLog struct {
	clock clock.PassiveClock
	log   *zap.Logger

	mu        sync.Mutex // guards byWebhook
	byWebhook map[string]*webhookFailures
}

// webhookFailures counts the failures of one webhook.
type webhookFailures struct {
	pause      backoff.Retry
	next       time.Time // earliest time of the next message
	suppressed int       // failures without a message since the last one
}

// failed logs a failure of the hook, or counts it for the next message.
func (f *failureLog) failed(h *hook, err error, outcome string) {
	if silent, due := f.count(h.Name); due {
		f.log.Warn("failed calling an admission webhook", zap.String("webhook", h.Name),
			zap.String("configuration", h.configuration),
			zap.String("outcome", outcome), zap.Int("failuresSinceLastMessage", silent), zap.Error(err))
	}
}

// count counts a failure. It reports whether a message is due, and how many failures had none.
func (f *failureLog) count(name string) (silent int, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.byWebhook[name]
	if w == nil {
		w = &webhookFailures{pause: backoff.Retry{First: time.Second, Most: 10 * time.Minute}}
		f.byWebhook[name] = w
	}
	now := f.clock.Now()
	if now.Before(w.next) {
		w.suppressed++
		return 0, false
	}
	silent, w.suppressed, w.next = w.suppressed, 0, now.Add(w.pause.Next())
	return silent, true
}

// succeeded resets the interval of the hook.
func (f *failureLog) succeeded(h *hook) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byWebhook, h.Name)
}

// retain drops the state of all webhooks except the named ones.
func (f *failureLog) retain(names map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.byWebhook {
		if !names[name] {
			delete(f.byWebhook, name)
		}
	}
}
