package follow

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Metrics has the names, labels and buckets of client-go's workqueue metrics. Depth and the ages of running
// reconciles are computed when metrics are collected.
type Metrics struct {
	Registerer prometheus.Registerer // for a controller's own metrics; never nil

	adds, retries, restarts *prometheus.CounterVec
	queued, work            *prometheus.HistogramVec
	depth, unfinished, long *prometheus.Desc

	mu     sync.Mutex // guards queues
	queues map[string]gauges
}

type gauges struct {
	depth   func() int
	running *running
	clock   clock.PassiveClock
}

var _ prometheus.Collector = (*Metrics)(nil)

// NewMetrics registers the metrics, or returns those that reg already has; with nil they are not registered.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	byName := []string{"name"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, byName)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(10e-9, 10, 12)}, byName)
	}
	gauge := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, byName, nil) }
	m := &Metrics{
		Registerer: reg,
		adds:       counter("workqueue_adds_total", "Keys added to the queue."),
		retries:    counter("workqueue_retries_total", "Keys added again for a retry."),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "monopod_controller_restarts_total",
			Help: "Restarts of a controller after a panic or an error."}, []string{"name", "cause"}),
		queued:     histogram("workqueue_queue_duration_seconds", "How long a key waits in the queue."),
		work:       histogram("workqueue_work_duration_seconds", "How long one reconcile takes."),
		depth:      gauge("workqueue_depth", "Keys waiting in the queue."),
		unfinished: gauge("workqueue_unfinished_work_seconds", "Sum of the ages of all running reconciles."),
		long:       gauge("workqueue_longest_running_processor_seconds", "Age of the oldest running reconcile."),
		queues:     map[string]gauges{},
	}
	err := reg.Register(m)
	if known := (prometheus.AlreadyRegisteredError{}); errors.As(err, &known) {
		return known.ExistingCollector.(*Metrics), nil
	}
	return m, err
}

func (m *Metrics) parts() []prometheus.Collector {
	return []prometheus.Collector{m.adds, m.retries, m.restarts, m.queued, m.work}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.parts() {
		c.Describe(ch)
	}
	ch <- m.depth
	ch <- m.unfinished
	ch <- m.long
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.parts() {
		c.Collect(ch)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, g := range m.queues {
		total, longest := g.running.ages(g.clock.Now())
		emit := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, name)
		}
		emit(m.depth, float64(g.depth()))
		emit(m.unfinished, total.Seconds())
		emit(m.long, longest.Seconds())
	}
}

// track exposes a queue's gauges until the returned function is called.
func (m *Metrics) track(name string, g gauges) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queues[name] = g
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.queues, name)
	}
}

// BusyQueues returns the names of the queues with keys that wait or run.
func (m *Metrics) BusyQueues() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for name, g := range m.queues {
		if total, _ := g.running.ages(g.clock.Now()); g.depth() > 0 || total > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// provider gives a queue those of its metrics that are not computed when they are collected.
type provider struct{ m *Metrics }

var _ workqueue.MetricsProvider = provider{}

// NewAddsMetric implements workqueue.MetricsProvider.
func (p provider) NewAddsMetric(name string) workqueue.CounterMetric {
	return p.m.adds.WithLabelValues(name)
}

// NewRetriesMetric implements workqueue.MetricsProvider.
func (p provider) NewRetriesMetric(name string) workqueue.CounterMetric {
	return p.m.retries.WithLabelValues(name)
}

// NewLatencyMetric implements workqueue.MetricsProvider.
func (p provider) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return p.m.queued.WithLabelValues(name)
}

// NewWorkDurationMetric implements workqueue.MetricsProvider.
func (p provider) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return p.m.work.WithLabelValues(name)
}

// NewDepthMetric implements workqueue.MetricsProvider.
func (provider) NewDepthMetric(string) workqueue.GaugeMetric { return computed{} }

// NewUnfinishedWorkSecondsMetric implements workqueue.MetricsProvider.
func (provider) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return computed{}
}

// NewLongestRunningProcessorSecondsMetric implements workqueue.MetricsProvider.
func (provider) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return computed{}
}

// computed is a metric that Collect computes.
type computed struct{}

// Inc implements workqueue.GaugeMetric.
func (computed) Inc() {}

// Dec implements workqueue.GaugeMetric.
func (computed) Dec() {}

// Set implements workqueue.SettableGaugeMetric.
func (computed) Set(float64) {}

// running records when each running reconcile began.
type running struct {
	mu    sync.Mutex // guards began
	began map[*time.Time]struct{}
}

func (r *running) begin(clk clock.PassiveClock) (end func()) {
	began := clk.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began == nil {
		r.began = map[*time.Time]struct{}{}
	}
	r.began[&began] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.began, &began)
	}
}

// ages returns the sum and the maximum of the running reconciles' ages.
func (r *running) ages(now time.Time) (total, longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for began := range r.began {
		age := now.Sub(*began)
		total += age
		longest = max(longest, age)
	}
	return total, longest
}

// Register registers a controller's own metric, or returns the one that is already registered.
func Register[C prometheus.Collector](m *Metrics, metric C) (C, error) {
	err := m.Registerer.Register(metric)
	if known := (prometheus.AlreadyRegisteredError{}); errors.As(err, &known) {
		if is, ok := known.ExistingCollector.(C); ok {
			return is, nil
		}
	}
	return metric, err
}
