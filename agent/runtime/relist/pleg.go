package relist

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// Threshold is the maximum time without an observation (upstream:
// genericPlegRelistThreshold).
const Threshold = 3 * time.Minute

// Health is the PLEG health of one node. Initially there is no event stream.
type Health struct {
	clock    clock.PassiveClock
	duration prometheus.Histogram
	interval prometheus.Histogram
	lastSeen prometheus.Gauge

	mu        sync.Mutex // guards the fields below
	streaming bool
	active    time.Time // the last time at which changes were observed
	relisting time.Time // start of the pending relist; zero: none
	relisted  time.Time // end of the last relist
}

// NewHealth registers metrics with upstream's names.
func NewHealth(clk clock.PassiveClock, metrics prometheus.Registerer) (*Health, error) {
	h := &Health{
		clock: clk, active: clk.Now(),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pleg_relist_duration_seconds", Help: "Duration in seconds of relisting the pods of the runtime."}),
		interval: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pleg_relist_interval_seconds", Help: "Interval in seconds between relists.",
			Buckets: []float64{1, 10, 60, 120, 240, 300, 360, 600}}),
		lastSeen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_pleg_last_seen_seconds", Help: "Time of the last relist, in seconds since 1970."}),
	}
	return h, errors.Join(metrics.Register(h.duration), metrics.Register(h.interval), metrics.Register(h.lastSeen))
}

// Streaming records whether the event stream works.
func (h *Health) Streaming(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streaming, h.active = on, h.clock.Now()
}

// Relist records the start of a relist; done records its end.
func (h *Health) Relist() (done func(error)) {
	began := h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relisting = began
	return func(err error) {
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
}

// Check returns nil while changes are observed: the stream works, or the last relist
// is recent, and no relist takes too long.
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
