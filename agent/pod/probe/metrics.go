package probe

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// Metrics counts probes, with upstream's names; nil counts nothing.
type Metrics struct {
	results  *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total",
			Help: "Cumulative number of a liveness, readiness or startup probe for a container by result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "prober_probe_duration_seconds", Help: "Duration in seconds for a probe response.",
		}, []string{"probe_type", "container", "pod", "namespace"}),
	}
	return m, errors.Join(r.Register(m.results), r.Register(m.duration))
}

// observe counts one probe of a pod's container.
func (m *Metrics) observe(pod *corev1.Pod, container string, kind Kind, took time.Duration, err error) {
	if m == nil {
		return
	}
	result := "successful"
	if unknown := (*UnknownError)(nil); errors.As(err, &unknown) {
		result = "unknown"
	} else if err != nil {
		result = "failed"
	}
	m.results.WithLabelValues(kind.String(), result, container, pod.Name, pod.Namespace, string(pod.UID)).Inc()
	m.duration.WithLabelValues(kind.String(), container, pod.Name, pod.Namespace).Observe(took.Seconds())
}

// Forget removes the series of a pod that no longer exists.
func (m *Metrics) Forget(pod *corev1.Pod) {
	if m == nil {
		return
	}
	m.results.DeletePartialMatch(prometheus.Labels{"pod_uid": string(pod.UID)})
	m.duration.DeletePartialMatch(prometheus.Labels{"namespace": pod.Namespace, "pod": pod.Name})
}
