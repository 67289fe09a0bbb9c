package follow

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// Metrics has the names, labels and buckets of client-go's workqueue metrics. Depth and the ages of running
// reconciles are computed when metrics are collected.
type Metrics struct {
	Registerer prometheus.Registerer // for a controller's own metrics; never nil

	adds, retries, slow, restarts     *prometheus.CounterVec
	queued, work                      *prometheus.HistogramVec
	depth, restless, unfinished, long *prometheus.Desc

	mu     sync.Mutex // guards queues
	queues map[string]gauges
}

type gauges struct {
	depth, restless func() int
	busy            *busy
	clock           clock.PassiveClock
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
		slow:       counter("monopod_workqueue_slowed_total", "Delayed wakes of keys that their own reconciles wake again and again."),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "monopod_controller_restarts_total",
			Help: "Restarts of a controller after a panic or an error."}, []string{"name", "cause"}),
		queued:     histogram("workqueue_queue_duration_seconds", "How long a key waits in the queue."),
		work:       histogram("workqueue_work_duration_seconds", "How long one reconcile takes."),
		depth:      gauge("workqueue_depth", "Keys waiting in the queue."),
		restless:   gauge("monopod_workqueue_restless_keys", "Keys that their own reconciles wake again and again."),
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
	return []prometheus.Collector{m.adds, m.retries, m.slow, m.restarts, m.queued, m.work}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.parts() {
		c.Describe(ch)
	}
	ch <- m.depth
	ch <- m.restless
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
		total, longest := g.busy.ages(g.clock.Now())
		emit := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, name)
		}
		emit(m.depth, float64(g.depth()))
		emit(m.restless, float64(g.restless()))
		emit(m.unfinished, total.Seconds())
		emit(m.long, longest.Seconds())
	}
}

// track exposes a queue's gauges until the returned function is called.
func (m *Metrics) track(name string, g gauges) func() {
	m.adds.WithLabelValues(name)
	m.retries.WithLabelValues(name)
	m.slow.WithLabelValues(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queues[name] = g
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.queues, name)
	}
}

func (m *Metrics) added(name string)   { m.adds.WithLabelValues(name).Inc() }
func (m *Metrics) retried(name string) { m.retries.WithLabelValues(name).Inc() }
func (m *Metrics) slowed(name string)  { m.slow.WithLabelValues(name).Inc() }
func (m *Metrics) waited(name string, d time.Duration) {
	m.queued.WithLabelValues(name).Observe(d.Seconds())
}
func (m *Metrics) worked(name string, d time.Duration) {
	m.work.WithLabelValues(name).Observe(d.Seconds())
}
func (m *Metrics) restarted(name, cause string) { m.restarts.WithLabelValues(name, cause).Inc() }

// Unsettled returns the names of the queues with keys that wait, run, or do not settle.
func (m *Metrics) Unsettled() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for name, g := range m.queues {
		if total, _ := g.busy.ages(g.clock.Now()); g.depth() > 0 || g.restless() > 0 || total > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// busy records when each running reconcile began.
type busy struct {
	mu    sync.Mutex // guards what follows
	next  int
	began map[int]time.Time
}

func (b *busy) begin(now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.began == nil {
		b.began = map[int]time.Time{}
	}
	b.next++
	b.began[b.next] = now
	return b.next
}

func (b *busy) end(id int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.began, id)
}

// ages returns the sum and the maximum of the running reconciles' ages.
func (b *busy) ages(now time.Time) (total, longest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.began {
		age := now.Sub(t)
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
