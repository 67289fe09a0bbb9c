package stats

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// labels are label pairs, sorted by name. The series of one container share them.
type labels []*dto.LabelPair

// newLabels returns labels from alternating names and values, sorted by name.
func newLabels(pairs ...string) labels {
	l := make(labels, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		l = append(l, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
	}
	return l
}

// with returns a copy of l with one more label.
func (l labels) with(name, value string) labels {
	i, _ := slices.BinarySearchFunc(l, name,
		func(p *dto.LabelPair, name string) int { return strings.Compare(p.GetName(), name) })
	return slices.Insert(slices.Clone(l), i, &dto.LabelPair{Name: &name, Value: &value})
}

// exposition contains the series of one scrape. It does not use prometheus.Desc, because there may be many thousands of
// series.
type exposition struct {
	families map[string]*dto.MetricFamily
}

const (
	counter = dto.MetricType_COUNTER
	gauge   = dto.MetricType_GAUGE
	nano    = 1e-9
)

// add adds a series unless its value, in multiples of unit, is unknown (nil).
func (e *exposition) add(kind dto.MetricType, name, help string, value *uint64, unit float64, l labels) {
	if value != nil {
		e.put(kind, name, help, float64(*value)*unit, l)
	}
}

func (e *exposition) put(kind dto.MetricType, name, help string, value float64, l labels) {
	f := e.families[name]
	if f == nil {
		if e.families == nil {
			e.families = map[string]*dto.MetricFamily{}
		}
		f = &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
		e.families[name] = f
	}
	m := &dto.Metric{Label: l}
	if kind == counter {
		m.Counter = &dto.Counter{Value: &value}
	} else {
		m.Gauge = &dto.Gauge{Value: &value}
	}
	f.Metric = append(f.Metric, m)
}

var _ prometheus.Gatherer = (*exposition)(nil)

// Gather implements prometheus.Gatherer.
func (e *exposition) Gather() ([]*dto.MetricFamily, error) {
	var out []*dto.MetricFamily
	for _, name := range slices.Sorted(maps.Keys(e.families)) {
		out = append(out, e.families[name])
	}
	return out, nil
}

func (e *exposition) serve(w http.ResponseWriter, r *http.Request) {
	promhttp.HandlerFor(e, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}
