package deviceplugin

import "github.com/prometheus/client_golang/prometheus"

// metrics are kubelet's.
type metrics struct {
	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	label := []string{"resource_name"}
	m := &metrics{
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_device_plugin_registration_total", Help: "Registrations of device plugins."}, label),
		allocations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_device_plugin_alloc_duration_seconds",
			Help:    "Seconds that plugins took to allocate.",
			Buckets: prometheus.DefBuckets}, label),
	}
	for _, c := range []prometheus.Collector{m.registrations, m.allocations} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
