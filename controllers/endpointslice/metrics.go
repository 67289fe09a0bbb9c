package endpointslice

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/follow"
	"monopod/controllers/sliceset"
)

// subsystem is upstream's.
const subsystem = "endpoint_slice_controller"

// metrics contains those of sliceset, and the ones that only this controller has.
type metrics struct {
	*sliceset.Metrics
	changed     *prometheus.HistogramVec
	syncs       *prometheus.CounterVec
	distributed *prometheus.GaugeVec

	mu sync.Mutex // guards of
	of map[follow.Key]string
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	shared, err := sliceset.NewMetrics(r, subsystem)
	m := &metrics{
		Metrics: shared,
		changed: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Subsystem: subsystem, Name: "endpointslices_changed_per_sync",
				Help: "Number of EndpointSlices changed on each Service sync."}, []string{"topology", "traffic_distribution"}),
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: "syncs",
			Help: "Number of EndpointSlice syncs."}, []string{"result"}),
		distributed: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Subsystem: subsystem, Name: "services_count_by_traffic_distribution",
				Help: "Number of Services using some specific trafficDistribution."}, []string{"traffic_distribution"}),
		of: map[follow.Key]string{},
	}
	return m, errors.Join(err, sliceset.Register(r, m.changed, m.syncs, m.distributed))
}

func (m *metrics) reset() {
	m.Reset()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of = map[follow.Key]string{}
	m.distributed.Reset()
}

// synced counts a sync and its result.
func (m *metrics) synced(err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.syncs.WithLabelValues(result).Inc()
}

// planned records the plan of a Service.
func (m *metrics) planned(key follow.Key, s *corev1.Service, p sliceset.Plan, groups []sliceset.Group, limit int) {
	m.Synced(key, p, groups, limit)
	topology := "Disabled"
	if topologyAuto(s) {
		topology = "Auto"
	}
	distribution := trafficDistribution(s)
	m.changed.WithLabelValues(topology, distribution).Observe(float64(len(p.Create) + len(p.Update) + len(p.Delete)))
	m.distribution(key, distribution)
}

func (m *metrics) forget(key follow.Key) {
	m.Forget(key)
	m.distribution(key, "")
}

// distribution counts a Service under a value of trafficDistribution instead of its previous one; empty: none.
func (m *metrics) distribution(key follow.Key, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.of[key]
	if was == value {
		return
	}
	if was != "" {
		m.distributed.WithLabelValues(was).Dec()
		delete(m.of, key)
	}
	if value != "" {
		m.distributed.WithLabelValues(value).Inc()
		m.of[key] = value
	}
}
