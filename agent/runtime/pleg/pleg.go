// Package pleg says whether a node still learns what becomes of its pods: from the
// runtime's stream of events, or from a list of all there is (upstream's pod
// lifecycle event generator, PLEG).
package pleg

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// Threshold is how long nothing may be learned (upstream: genericPlegRelistThreshold).
const Threshold = 3 * time.Minute

// Health is of one node. It begins without a stream.
type Health struct {
	clock    clock.PassiveClock
	duration prometheus.Histogram
	interval prometheus.Histogram
	lastSeen prometheus.Gauge

	mu        sync.Mutex // guards what follows
	streaming bool
	active    time.Time // when something was learned last, or might have been
	relisting time.Time // when the list was asked for that has not come; zero: none
	relisted  time.Time // when the last one had come
}

// New registers metrics with upstream's names.
func New(clk clock.PassiveClock, metrics prometheus.Registerer) (*Health, error) {
	h := &Health{
		clock: clk, active: clk.Now(),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pleg_relist_duration_seconds", Help: "How long it took to list the pods of the runtime."}),
		interval: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pleg_relist_interval_seconds", Help: "Time between two lists.", Buckets: []float64{1, 10, 60, 120, 240, 300, 360, 600}}),
		lastSeen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_pleg_last_seen_seconds", Help: "When the pods of the runtime were listed last, in seconds since 1970."}),
	}
	return h, errors.Join(metrics.Register(h.duration), metrics.Register(h.interval), metrics.Register(h.lastSeen))
}

// Streaming says that events come from now on, or that they no longer do.
func (h *Health) Streaming(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streaming, h.active = on, h.clock.Now()
}

// Relist says that the runtime is asked for a list; done, that the answer has come.
func (h *Health) Relist() (done func(error)) {
	began := h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relisting = began
	return func(err error) { h.listed(began, err) }
}

func (h *Health) listed(began time.Time, err error) {
	now := h.clock.Now()
	h.duration.Observe(now.Sub(began).Seconds())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relisting = time.Time{}
	if err != nil {
		return
	}
	if !h.relisted.IsZero() {
		h.interval.Observe(began.Sub(h.relisted).Seconds())
	}
	h.relisted, h.active = now, now
	h.lastSeen.Set(float64(now.Unix()))
}

// Check is nil while changes are learned of: events come, or the last list is not
// too old, and none is waited for too long.
func (h *Health) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := h.active
	switch {
	case !h.relisting.IsZero():
		since = h.relisting
	case h.streaming:
		return nil
	}
	if idle := h.clock.Since(since); idle > Threshold {
		return fmt.Errorf("pleg was last seen active %v ago; threshold is %v", idle.Truncate(time.Second), Threshold)
	}
	return nil
}
