package credentials

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metricState contains the facts about a certificate from which its metric is computed.
type metricState struct {
	signer             string
	refused            string // denied or failed; empty: not refused
	issued             bool
	refreshAt, expires time.Time
}

// The states of a certificate, upstream's.
const (
	notIssued = "not_yet_issued"
	denied    = "denied"
	failed    = "failed"
	fresh     = "fresh"
	late      = "overdue_for_refresh"
	expired   = "expired"
)

func (s metricState) state(now time.Time) string {
	switch {
	case s.refused != "":
		return s.refused
	case !s.issued:
		return notIssued
	case !now.Before(s.expires):
		return expired
	case !now.Before(s.refreshAt.Add(overdue)):
		return late
	}
	return fresh
}

// collector counts the certificates when the metrics are read.
type collector struct {
	*Certificates
	desc *prometheus.Desc
}

var _ prometheus.Collector = collector{}

// Metrics returns the number of certificates by signer and state.
func (k *Certificates) Metrics() prometheus.Collector {
	return collector{k, prometheus.NewDesc("kubelet_podcertificate_states",
		"Number of certificates of pods, by signer and state: "+
			"not_yet_issued, fresh, overdue_for_refresh, expired, denied or failed.",
		[]string{"signer_name", "state"}, nil)}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	now, count := c.clock.Now(), map[[2]string]int{}
	for _, s := range c.states.All() {
		count[[2]string{s.signer, s.state(now)}]++
	}
	for labels, n := range count {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), labels[0], labels[1])
	}
}
