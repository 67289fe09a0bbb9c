package dra

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"
)

// anyDriver is upstream's label value for all drivers in the metric of claims.
const anyDriver = "<any>"

// metrics are upstream's.
type metrics struct {
	clock             clock.PassiveClock
	operations, calls *prometheus.HistogramVec
	claims            *prometheus.Desc
}

func newMetrics(c clock.PassiveClock) metrics {
	buckets := prometheus.ExponentialBucketsRange(.1, 40, 15)
	return metrics{
		clock: c,
		operations: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: "dra_operations_duration_seconds", Buckets: buckets,
				Help: "Time that it took to prepare or unprepare all resource claims of a pod."},
			[]string{"operation_name", "is_error"}),
		calls: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: "dra_grpc_operations_duration_seconds", Buckets: buckets,
				Help: "Duration of calls to DRA drivers."}, []string{"driver_name", "method_name", "grpc_status_code"}),
		claims: prometheus.NewDesc("dra_resource_claims_in_use",
			"Number of resource claims that pods of the node use, by driver, and of all drivers (<any>).",
			[]string{"driver_name"}, nil),
	}
}

// operation records the end of an operation for a pod.
func (m metrics) operation(name string, began time.Time, err error) {
	m.operations.WithLabelValues(name, strconv.FormatBool(err != nil)).Observe(m.clock.Since(began).Seconds())
}

// call records the end of a call to a driver.
func (m metrics) call(driver, method string, began time.Time, err error) {
	m.calls.WithLabelValues(driver, "/v1.DRAPlugin/"+method, status.Code(err).String()).Observe(
		m.clock.Since(began).Seconds())
}

// Metrics returns a collector of the manager's metrics.
func (m *Manager) Metrics() prometheus.Collector { return collector{m} }

type collector struct{ *Manager }

// Describe implements prometheus.Collector.
func (m collector) Describe(to chan<- *prometheus.Desc) {
	m.metrics.operations.Describe(to)
	m.metrics.calls.Describe(to)
	to <- m.metrics.claims
}

// Collect implements prometheus.Collector.
func (m collector) Collect(to chan<- prometheus.Metric) {
	m.metrics.operations.Collect(to)
	m.metrics.calls.Collect(to)
	count := map[string]int{anyDriver: 0}
	m.mu.Lock()
	for _, c := range m.claims {
		if len(c.Pods) == 0 {
			continue
		}
		count[anyDriver]++
		for _, driver := range c.Drivers {
			count[driver]++
		}
	}
	m.mu.Unlock()
	for driver, n := range count {
		to <- prometheus.MustNewConstMetric(m.metrics.claims, prometheus.GaugeValue, float64(n), driver)
	}
}
