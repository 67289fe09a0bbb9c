package sliceset

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"monopod/apiserver/kit/follow"
)

// Metrics contains upstream's metrics that both controllers of slices have.
type Metrics struct {
	added, removed             prometheus.Histogram
	changes                    *prometheus.CounterVec
	endpoints, actual, desired prometheus.Gauge

	mu  sync.Mutex // guards the fields below
	of  map[follow.Key]Totals
	sum Totals
}

// Totals contains the numbers of one Service. Desired is the minimum number of slices for its endpoints.
type Totals struct{ Endpoints, Slices, Desired int }

// NewMetrics registers the metrics of a subsystem.
func NewMetrics(r prometheus.Registerer, subsystem string) (*Metrics, error) {
	m := &Metrics{
		added:   Histogram(subsystem, "endpoints_added_per_sync", "Number of endpoints added on each sync."),
		removed: Histogram(subsystem, "endpoints_removed_per_sync", "Number of endpoints removed on each sync."),
		changes: prometheus.NewCounterVec(
			prometheus.CounterOpts{Subsystem: subsystem, Name: "changes", Help: "Number of EndpointSlice changes."},
			[]string{"operation"}),
		endpoints: prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: "endpoints_desired",
			Help: "Number of endpoints desired."}),
		actual: prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: "num_endpoint_slices",
			Help: "Number of EndpointSlices."}),
		desired: prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: "desired_endpoint_slices",
			Help: "Number of EndpointSlices that would exist with perfect endpoint allocation."}),
		of: map[follow.Key]Totals{},
	}
	return m, Register(r, m.added, m.removed, m.changes, m.endpoints, m.actual, m.desired)
}

// Histogram returns a histogram with upstream's buckets for numbers of endpoints.
func Histogram(subsystem, name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(
		prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(2, 2, 15)})
}

// Register registers collectors.
func Register(r prometheus.Registerer, all ...prometheus.Collector) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// Reset removes all Services, for a restart of the controller.
func (m *Metrics) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of, m.sum = map[follow.Key]Totals{}, Totals{}
	m.show()
}

// Synced records a plan of a Service.
func (m *Metrics) Synced(service follow.Key, p Plan, groups []Group, limit int) {
	m.added.Observe(float64(p.Added))
	m.removed.Observe(float64(p.Removed))
	now := Totals{Slices: len(p.Create) + len(p.Update) + len(p.Unchanged)}
	for _, g := range groups {
		now.Endpoints += len(g.Endpoints)
		now.Desired += max(1, (len(g.Endpoints)+limit-1)/limit)
	}
	m.set(service, now)
}

// Forget subtracts a Service from the sums.
func (m *Metrics) Forget(service follow.Key) { m.set(service, Totals{}) }

func (m *Metrics) set(service follow.Key, now Totals) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.of[service]
	if was == now {
		return
	}
	m.sum.Endpoints += now.Endpoints - was.Endpoints
	m.sum.Slices += now.Slices - was.Slices
	m.sum.Desired += now.Desired - was.Desired
	if m.of[service] = now; now == (Totals{}) {
		delete(m.of, service)
	}
	m.show()
}

// show sets the gauges. The caller holds mu.
func (m *Metrics) show() {
	m.endpoints.Set(float64(m.sum.Endpoints))
	m.actual.Set(float64(m.sum.Slices))
	m.desired.Set(float64(m.sum.Desired))
}

// Changed counts a write.
func (m *Metrics) Changed(operation string) { m.changes.WithLabelValues(operation).Inc() }
