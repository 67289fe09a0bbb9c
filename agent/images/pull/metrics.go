package pull

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are kubelet's metrics of pulls.
type Metrics struct {
	took *prometheus.HistogramVec
}

// NewMetrics returns Metrics and registers them.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubelet_image_pull_duration_seconds", Help: "Duration in seconds to pull an image.",
		Buckets: []float64{1, 5, 10, 20, 30, 60, 180, 300, 600, 900, 1200, 1800, 2700, 3600},
	}, []string{"image_size_in_bytes"})}
	return m, r.Register(m.took)
}

func (m *Metrics) pulled(size uint64, took time.Duration) {
	if m != nil {
		m.took.WithLabelValues(sizeClass(size)).Observe(took.Seconds())
	}
}

// sizeClass returns upstream's label for the size of an image.
func sizeClass(size uint64) string {
	const mega, giga = 1 << 20, 1 << 30
	if size == 0 {
		return "N/A"
	}
	for _, c := range []struct {
		below uint64
		label string
	}{
		{10 * mega, "0-10MB"}, {100 * mega, "10MB-100MB"}, {500 * mega, "100MB-500MB"}, {giga, "500MB-1GB"},
		{10 * giga, "1GB-10GB"}, {50 * giga, "10GB-50GB"}, {100 * giga, "50GB-100GB"},
	} {
		if size < c.below {
			return c.label
		}
	}
	return ">100GB"
}
