package record

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons why an event was not written.
const (
	full     = "queue_full" // the queue was full
	spam     = "spam"       // too many events about one object
	refused  = "refused"    // the API refused it
	closed   = "closed"     // the recorder was closed
	panicked = "panic"      // writing it panicked
)

// Metrics counts, for all recorders of a process, the events that were not written.
type Metrics struct{ dropped *prometheus.CounterVec }

// NewMetrics registers the metric, or returns the one that reg already has; with nil it is not registered.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "monopod_events_dropped_total",
		Help: "Number of events that were not written, by source and reason: " +
			"queue_full, spam (of one object), refused (by the API), closed or panic.",
	}, []string{"component", "reason"})}
	if reg == nil {
		return m, nil
	}
	err := reg.Register(m.dropped)
	if is := (prometheus.AlreadyRegisteredError{}); errors.As(err, &is) {
		m.dropped, err = is.ExistingCollector.(*prometheus.CounterVec), nil
	}
	return m, err
}
