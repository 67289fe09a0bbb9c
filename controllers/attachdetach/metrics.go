package attachdetach

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"monopod/apiserver/kit/claim"
)

// metrics contains upstream's metrics.
type metrics struct {
	forced *prometheus.CounterVec // by reason
	total  *prometheus.Desc

	mu    sync.Mutex // guards nodes
	nodes map[string]map[amount]int
}

// amount names a number of volumes.
type amount struct{ plugin, state string }

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		forced: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "attach_detach_controller",
			Name: "attachdetach_controller_forced_detaches",
			Help: "Number of volumes that were detached although their node uses them."}, []string{"reason"}),
		total: prometheus.NewDesc("attachdetach_controller_total_volumes",
			"Number of volumes that pods of nodes need, and that are attached or being attached.",
			[]string{"plugin_name", "state"}, nil),
	}
	return m, errors.Join(r.Register(m.forced), r.Register(m))
}

func (m *metrics) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes = map[string]map[amount]int{}
}

// count replaces the numbers of a node.
func (m *metrics) count(v view) {
	now := map[amount]int{}
	for _, w := range v.wanted {
		now[amount{"kubernetes.io/csi:" + w.Spec.CSI.Driver, "desired_state_of_world"}]++
	}
	for _, a := range v.attachments {
		driver, _, _ := claim.SplitUniqueName(a.volume)
		now[amount{"kubernetes.io/csi:" + driver, "actual_state_of_world"}]++
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodes[v.name] = now; len(now) == 0 {
		delete(m.nodes, v.name)
	}
}

var _ prometheus.Collector = (*metrics)(nil)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) { to <- m.total }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	sum := map[amount]int{}
	m.mu.Lock()
	for _, of := range m.nodes {
		for a, n := range of {
			sum[a] += n
		}
	}
	m.mu.Unlock()
	for a, n := range sum {
		to <- prometheus.MustNewConstMetric(m.total, prometheus.GaugeValue, float64(n), a.plugin, a.state)
	}
}
