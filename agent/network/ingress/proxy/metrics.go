package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monopod/apiserver/kit/follow"
)

// Metrics of the requests. Requests that no rule matches have empty labels.
type Metrics struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	retries  prometheus.Counter
	conns    *prometheus.GaugeVec
	none     *Counts
}

// Counts are the metrics of one Ingress.
type Counts struct {
	codes [6]prometheus.Counter // by the first digit
	took  prometheus.Observer
}

var codeClasses = [6]string{"other", "1xx", "2xx", "3xx", "4xx", "5xx"}

// NewMetrics registers the metrics.
func NewMetrics(m *follow.Metrics) (*Metrics, error) {
	labels := []string{"namespace", "ingress"}
	requests, err := follow.Register(m, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "monopod_ingress_requests_total",
		Help: "Requests of the ingress controller, by Ingress and class of the response's code.",
	}, append(labels, "code")))
	if err != nil {
		return nil, err
	}
	took, err := follow.Register(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "monopod_ingress_request_duration_seconds",
		Help:    "How long requests of the ingress controller take, until the end of the response.",
		Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 10, 60},
	}, labels))
	if err != nil {
		return nil, err
	}
	retries, err := follow.Register(m, prometheus.NewCounter(prometheus.CounterOpts{
		Name: "monopod_ingress_retries_total",
		Help: "Requests that were sent to another endpoint, because one did not answer.",
	}))
	if err != nil {
		return nil, err
	}
	conns, err := follow.Register(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "monopod_ingress_connections",
		Help: "Open connections of clients of the ingress controller.",
	}, []string{"scheme"}))
	if err != nil {
		return nil, err
	}
	all := &Metrics{requests: requests, took: took, retries: retries, conns: conns}
	all.none = all.Of(follow.Key{})
	return all, nil
}

// Of returns the metrics of an Ingress.
func (m *Metrics) Of(ing follow.Key) *Counts {
	c := &Counts{took: m.took.WithLabelValues(ing.Namespace, ing.Name)}
	for i, class := range codeClasses {
		c.codes[i] = m.requests.WithLabelValues(ing.Namespace, ing.Name, class)
	}
	return c
}

// Forget removes the metrics of an Ingress.
func (m *Metrics) Forget(ing follow.Key) {
	labels := prometheus.Labels{"namespace": ing.Namespace, "ingress": ing.Name}
	m.requests.DeletePartialMatch(labels)
	m.took.DeletePartialMatch(labels)
}

// served counts a request; to is nil if no rule matched.
func (m *Metrics) served(to *Destination, code int, took time.Duration) {
	c := m.none
	if to != nil {
		c = to.Counts
	}
	class := code / 100
	if class >= len(c.codes) {
		class = 0
	}
	c.codes[class].Inc()
	c.took.Observe(took.Seconds())
}
