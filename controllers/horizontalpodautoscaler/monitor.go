package horizontalpodautoscaler

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"monopod/apiserver/kit/follow"
)

// monitor contains upstream's metrics: names, labels and label values.
type monitor struct {
	evaluations, computations *prometheus.CounterVec
	evaluated, computed       *prometheus.HistogramVec
}

func newMonitor(m *follow.Metrics) (*monitor, error) {
	var errs []error
	pair := func(total, seconds, of string, labels ...string) (*prometheus.CounterVec, *prometheus.HistogramVec) {
		const prefix = "horizontal_pod_autoscaler_controller_"
		counter, err := follow.Register(m,
			prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + total, Help: "Number of " + of + "."}, labels))
		errs = append(errs, err)
		histogram, err := follow.Register(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + seconds, Help: "How long " + of + " take.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, labels))
		errs = append(errs, err)
		return counter, histogram
	}
	mon := &monitor{}
	mon.evaluations,
		mon.evaluated = pair("reconciliations_total", "reconciliation_duration_seconds", "evaluations of autoscalers",
		"action", "error")
	mon.computations,
		mon.computed = pair("metric_computation_total", "metric_computation_duration_seconds",
		"computations of single metrics",
		"action", "error", "metric_type")
	return mon, errors.Join(errs...)
}

// computation is the result of one metric.
type computation struct {
	kind   autoscalingv2.MetricSourceType
	action string
	err    error
	took   time.Duration // time to read the usage of the pods, once for all metrics
}

// record counts an evaluation.
func (m *monitor) record(v *verdict, err error, took time.Duration) {
	action := "none"
	if v != nil {
		for _, c := range v.computed {
			m.computations.WithLabelValues(c.action, cause(c.err), string(c.kind)).Inc()
			m.computed.WithLabelValues(c.action, cause(c.err), string(c.kind)).Observe(c.took.Seconds())
		}
		if err == nil {
			err = v.err
		}
		if v.rescale {
			action = direction(v.replicas, v.status.CurrentReplicas)
		}
	}
	m.evaluations.WithLabelValues(action, cause(err)).Inc()
	m.evaluated.WithLabelValues(action, cause(err)).Observe(took.Seconds())
}

// specError is an error that only a change of the autoscaler's spec can fix.
type specError struct{ error }

// cause returns the label value of an error: the autoscaler's spec, or anything else.
func cause(err error) string {
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &specError{}):
		return "spec"
	}
	return "internal"
}

// direction returns the label value of a change of the number of pods.
func direction(to, from int32) string {
	switch {
	case to > from:
		return "scale_up"
	case to < from:
		return "scale_down"
	}
	return "none"
}
