package record

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Why an event was not written.
const (
	full    = "queue_full" // too many waited
	spam    = "spam"       // too many about its object
	refused = "refused"    // the API did not take it
	closed  = "closed"     // the process was about to end
)

// Metrics count, for all recorders of a process, the events that were not written.
type Metrics struct{ dropped *prometheus.CounterVec }

// NewMetrics registers them, unless that was done; nil keeps them to themselves.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "monopod_events_dropped_total",
		Help: "Events that were not written, by their source and the reason: queue_full, spam (of one object), refused (by the API) or closed.",
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
