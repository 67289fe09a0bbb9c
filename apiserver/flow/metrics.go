package flow

import (
	"github.com/prometheus/client_golang/prometheus"

	"monopod/apiserver/flow/fair"
)

// metrics have upstream's names and labels.
type metrics struct {
	rejected, dispatched, refused           *prometheus.CounterVec
	waiting, waitingSeats, executing, seats *prometheus.GaugeVec
	waited, took, lengths                   *prometheus.HistogramVec
	nominal, lower, upper, limit            *prometheus.GaugeVec
	utilization, demand                     *prometheus.Desc
}

// counts are the metrics of one schema.
type counts struct {
	dispatched       prometheus.Counter
	unaccommodated   prometheus.Counter
	waiting          prometheus.Gauge
	waitingSeats     prometheus.Gauge
	executing, seats prometheus.Gauge
	lengths          prometheus.Observer
	waited, refused  prometheus.Observer
	regular, watches prometheus.Observer
	rejections       *prometheus.CounterVec
}

const (
	levelLabel  = "priority_level"
	schemaLabel = "flow_schema"
)

func newMetrics() *metrics {
	const namespace, subsystem = "apiserver", "flowcontrol"
	both := []string{levelLabel, schemaLabel}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(
			prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help},
			append(both[:2:2], labels...))
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}, labels)
	}
	seconds := func(name, help, label string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help,
				Buckets: []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}}, append(both[:2:2], label))
	}
	return &metrics{
		rejected:   counter("rejected_requests_total", "Number of requests that were refused.", "reason"),
		dispatched: counter("dispatched_requests_total", "Number of requests that were admitted."),
		waiting:    gauge("current_inqueue_requests", "Number of requests that wait in queues.", both...),
		executing: gauge("current_executing_requests",
			"Number of requests that are executing; of watches only their beginning.", both...),
		seats: gauge("current_executing_seats", "Number of seats of the requests that are executing.", both...),
		refused: counter("request_dispatch_no_accommodation_total",
			"Number of requests for which no seat was free when they came."),
		waitingSeats: gauge("current_inqueue_seats", "Number of seats that the requests in queues wait for.", both...),
		lengths: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: "request_queue_length_after_enqueue",
				Help:    "Length of the queue of a request that waits, with the request.",
				Buckets: []float64{0, 10, 25, 50, 100, 250, 500, 1000}}, both),
		utilization: prometheus.NewDesc("apiserver_flowcontrol_priority_level_seat_utilization",
			"Share of the most seats of a priority level that were taken, in each nanosecond.",
			[]string{levelLabel}, prometheus.Labels{"phase": "executing"}),
		demand: prometheus.NewDesc("apiserver_flowcontrol_demand_seats",
			"Seats that a priority level could have used, divided by its nominal number, in each nanosecond.",
			[]string{levelLabel}, nil),
		waited: seconds("request_wait_duration_seconds", "Time for which requests waited in their queues.", "execute"),
		took: seconds("request_execution_seconds",
			"Duration of the execution of requests; of watches only their beginning.", "type"),
		nominal: gauge("nominal_limit_seats", "Share of the seats of each priority level.", levelLabel),
		lower:   gauge("lower_limit_seats", "Number of seats of each priority level that others cannot borrow.", levelLabel),
		upper: gauge("upper_limit_seats",
			"Maximum number of seats of each priority level, with what it borrows.", levelLabel),
		limit: gauge("current_limit_seats", "Number of seats that each priority level can have now.", levelLabel),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.rejected, m.dispatched, m.refused, m.waiting, m.waitingSeats, m.lengths,
		m.executing, m.seats, m.waited, m.took, m.nominal, m.lower, m.upper, m.limit}
}

// of returns the metrics of a schema.
func (m *metrics) of(level, schema string) *counts {
	return &counts{
		dispatched:     m.dispatched.WithLabelValues(level, schema),
		waiting:        m.waiting.WithLabelValues(level, schema),
		unaccommodated: m.refused.WithLabelValues(level, schema),
		waitingSeats:   m.waitingSeats.WithLabelValues(level, schema),
		lengths:        m.lengths.WithLabelValues(level, schema),
		executing:      m.executing.WithLabelValues(level, schema),
		seats:          m.seats.WithLabelValues(level, schema),
		waited:         m.waited.WithLabelValues(level, schema, "true"),
		refused:        m.waited.WithLabelValues(level, schema, "false"),
		regular:        m.took.WithLabelValues(level, schema, "regular"),
		watches:        m.took.WithLabelValues(level, schema, "watch"),
		rejections:     m.rejected.MustCurryWith(prometheus.Labels{levelLabel: level, schemaLabel: schema}),
	}
}

// waits counts a request that begins (1) or stops (-1) to wait for its seat.
func (c *counts) waits(n float64) {
	c.waiting.Add(n)
	c.waitingSeats.Add(n)
	if n > 0 {
		c.unaccommodated.Inc()
	}
}

// queued records the length of the queue of a request.
func (c *counts) queued(length int) { c.lengths.Observe(float64(length)) }

func (c *counts) rejected(reason fair.Outcome) {
	c.rejections.WithLabelValues(string(reason)).Inc()
}

// limits sets the limits of a level.
func (m *metrics) limits(level string, l fair.LevelConfig) {
	m.nominal.WithLabelValues(level).Set(float64(l.Nominal))
	m.lower.WithLabelValues(level).Set(float64(l.Min))
	m.upper.WithLabelValues(level).Set(float64(l.Max))
}

// forget removes the metrics of schemas that are in old and not in now, or in another level.
func (m *metrics) forget(old, now *rules) {
	if old == nil {
		return
	}
	kept := make(map[[2]string]bool, len(now.schemas))
	for _, s := range now.schemas {
		kept[[2]string{s.level.name, s.name}] = true
	}
	for _, s := range old.schemas {
		if !kept[[2]string{s.level.name, s.name}] {
			m.delete(prometheus.Labels{levelLabel: s.level.name, schemaLabel: s.name})
		}
	}
}

func (m *metrics) delete(labels prometheus.Labels) {
	for _, c := range m.all() {
		if v, ok := c.(interface {
			DeletePartialMatch(prometheus.Labels) int
		}); ok {
			v.DeletePartialMatch(labels)
		}
	}
}

// collector computes the metrics that are only known when they are read.
type collector struct{ *Dispatcher }

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.metrics.all() {
		m.Describe(out)
	}
	out <- c.metrics.utilization
	out <- c.metrics.demand
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for name, s := range c.states() {
		c.metrics.limit.WithLabelValues(name).Set(float64(s.Limit))
		u, d := s.utilization, s.demand
		out <- prometheus.MustNewConstHistogram(c.metrics.utilization, u.Total, u.Sum, u.Buckets, name)
		out <- prometheus.MustNewConstHistogram(c.metrics.demand, d.Total, d.Sum, d.Buckets, name)
	}
	for _, m := range c.metrics.all() {
		m.Collect(out)
	}
}
