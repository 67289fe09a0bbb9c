package scheduler

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monopod/apiserver/kit/follow"
	"monopod/controllers/owned"
)

// metrics contains upstream's metrics.
type metrics struct {
	attempts    *prometheus.CounterVec   // by profile and result
	duration    *prometheus.HistogramVec // of one attempt
	sli         *prometheus.HistogramVec // from a pod's first attempt until it is scheduled
	tries       prometheus.Histogram
	entered     *prometheus.CounterVec
	preemptions prometheus.Counter
	victims     prometheus.Histogram
	conditional *prometheus.CounterVec   // devices with binding conditions, by outcome of the wait
	waits       *prometheus.HistogramVec // waits for binding conditions
	claims      owned.ClaimCreations
	running     atomic.Pointer[run] // run that the gauges read; nil: not running
}

func newMetrics(all *follow.Metrics) (*metrics, error) {
	to := all.Registerer
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	histogram := func(name, help string, start float64, buckets int) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(start, 2, buckets)}
	}
	m := &metrics{
		attempts: prometheus.NewCounterVec(counter("scheduler_schedule_attempts_total",
			"Number of attempts to schedule a pod, by result: scheduled, unschedulable or error."),
			[]string{"profile", "result"}),
		duration: prometheus.NewHistogramVec(histogram("scheduler_scheduling_attempt_duration_seconds",
			"Duration of an attempt to schedule a pod, in seconds, with its binding.", 0.001, 15),
			[]string{"profile", "result"}),
		sli: prometheus.NewHistogramVec(histogram("scheduler_pod_scheduling_sli_duration_seconds",
			"Time from when a pod could first be scheduled until it was, in seconds.", 0.01, 20), []string{"attempts"}),
		tries: prometheus.NewHistogram(histogram("scheduler_pod_scheduling_attempts",
			"Number of attempts to schedule a pod that was scheduled.", 1, 5)),
		entered: prometheus.NewCounterVec(counter("scheduler_queue_incoming_pods_total",
			"Number of pods added to a queue, by event."), []string{"event", "queue"}),
		preemptions: prometheus.NewCounter(counter("scheduler_preemption_attempts_total",
			"Number of attempts to make room for a pod by preempting others.")),
		victims: prometheus.NewHistogram(
			histogram("scheduler_preemption_victims", "Number of pods that were preempted to make room for one.", 1, 7)),
	}
	m.conditional = prometheus.NewCounterVec(counter("scheduler_dra_bindingconditions_allocations_total",
		"Number of allocated devices with binding conditions, by outcome of the wait for the conditions."),
		[]string{"profile", "driver", "status"})
	m.waits = prometheus.NewHistogramVec(histogram("scheduler_dra_bindingconditions_wait_duration_seconds",
		"Time that pods waited for the binding conditions of their devices, in seconds.", 0.1, 14),
		[]string{"profile", "driver", "status"})
	for _, c := range []prometheus.Collector{m.conditional, m.waits, m.attempts, m.duration, m.sli, m.tries, m.entered,
		m.preemptions, m.victims, newGauges(m)} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	var err error
	m.claims, err = owned.NewClaimCreations(all)
	return m, err
}

func (m *metrics) scheduled(e *Entry, attempt, all time.Duration) {
	m.attempts.WithLabelValues(Component, "scheduled").Inc()
	m.duration.WithLabelValues(Component, "scheduled").Observe(attempt.Seconds())
	m.sli.WithLabelValues(strconv.Itoa(min(e.Attempts, 16))).Observe(all.Seconds())
	m.tries.Observe(float64(e.Attempts))
}

func (m *metrics) unschedulable(attempt time.Duration) {
	m.attempts.WithLabelValues(Component, "unschedulable").Inc()
	m.duration.WithLabelValues(Component, "unschedulable").Observe(attempt.Seconds())
}

func (m *metrics) incoming(added bool) {
	event := "PodUpdate"
	if added {
		event = "PodAdd"
	}
	m.entered.WithLabelValues(event, string(Active)).Inc()
}

// observe sets the run that the gauges read.
func (m *metrics) observe(r *run) { m.running.Store(r) }

// gauges are computed when the metrics are read.
type gauges struct {
	*metrics
	pending, waiting, known *prometheus.Desc
}

func newGauges(m *metrics) gauges {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return gauges{m,
		gauge("scheduler_pending_pods", "Number of pods without a node, by queue: active, backoff, unschedulable or gated.",
			"queue"),
		gauge("scheduler_unschedulable_pods", "Number of unschedulable pods, by the plugin that refused them.", "plugin",
			"profile"),
		gauge("scheduler_cache_size", "Number of nodes and pods in the scheduler's cache.", "type"),
	}
}

var _ prometheus.Collector = gauges{}

// Describe implements prometheus.Collector.
func (g gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.pending, g.waiting, g.known} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(to chan<- prometheus.Metric) {
	r := g.running.Load()
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	for _, s := range States() {
		gauge(g.pending, r.queue.Len(s), string(s))
	}
	for i := range r.chooser.Rules {
		if n := r.queue.Refusals(i); n > 0 {
			gauge(g.waiting, n, r.chooser.Rules[i].Name, Component)
		}
	}
	gauge(g.known, len(r.cluster.Nodes()), "nodes")
	gauge(g.known, r.cluster.Pods(), "pods")
}
