// Package latency counts requests and their latency in upstream's metrics.
//
// A kind has a series for each verb, subresource, scope, code and so on. Prometheus' own vectors keep some twenty
// objects for each, which a burst of odd requests scatters over the heap; a series here is one object, and what
// Prometheus needs is made when it asks.
package latency

import (
	"slices"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Request contains the labels of a request in upstream's metrics.
type Request struct {
	Verb, Group, Version, Resource, Subresource, Scope string
	DryRun                                             string
	Code                                               int
}

// The buckets of upstream's metrics, and those of both.
var (
	duration = []float64{0.001, 0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60}
	sli      = []float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	bounds   = func() []float64 {
		all := slices.Concat(duration, sli)
		slices.Sort(all)
		return slices.Compact(all)
	}()
)

// buckets is the number of buckets: one for each of bounds, and one for larger values.
const buckets = 27

// series counts the requests with the same labels.
type series struct {
	count   atomic.Uint64
	timed   atomic.Uint64          // those whose time is known
	sum     atomic.Int64           // of their times, in nanoseconds: whole numbers add up to the same in any order
	buckets [buckets]atomic.Uint64 // of their seconds
}

// Requests counts requests. It is a prometheus.Collector.
type Requests struct {
	total, duration, sli *prometheus.Desc

	mu  sync.RWMutex // guards all
	all map[Request]*series
}

var _ prometheus.Collector = (*Requests)(nil)

// New returns a Requests.
func New() *Requests {
	component := prometheus.Labels{"component": "apiserver"}
	labels := []string{"verb", "group", "version", "resource", "subresource", "scope"}
	dry := append(slices.Clip(labels), "dry_run")
	return &Requests{
		total: prometheus.NewDesc("apiserver_request_total",
			"Number of requests by verb, resource, subresource, scope and HTTP code.",
			append(slices.Clip(dry), "code"), component),
		duration: prometheus.NewDesc("apiserver_request_duration_seconds",
			"Response latency in seconds, without watches and streams.", dry, component),
		sli: prometheus.NewDesc("apiserver_request_sli_duration_seconds",
			"Response latency in seconds, for service level indicators.", labels, component),
		all: map[Request]*series{},
	}
}

// Count counts a request that has no latency: a watch or a stream that has ended.
func (q *Requests) Count(r Request) { q.of(r).count.Add(1) }

// Observe counts a request with its latency.
func (q *Requests) Observe(r Request, took time.Duration) {
	s := q.of(r)
	s.count.Add(1)
	s.timed.Add(1)
	s.buckets[sort.SearchFloat64s(bounds, took.Seconds())].Add(1)
	s.sum.Add(int64(took))
}

func (q *Requests) of(r Request) *series {
	q.mu.RLock()
	s := q.all[r]
	q.mu.RUnlock()
	if s != nil {
		return s
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if s = q.all[r]; s == nil {
		s = &series{}
		q.all[r] = s
	}
	return s
}

// Describe implements prometheus.Collector.
func (q *Requests) Describe(out chan<- *prometheus.Desc) {
	out <- q.total
	out <- q.duration
	out <- q.sli
}

// Collect implements prometheus.Collector.
func (q *Requests) Collect(out chan<- prometheus.Metric) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	durations, slis := map[Request]*histogram{}, map[Request]*histogram{}
	for r, s := range q.all {
		out <- prometheus.MustNewConstMetric(q.total, prometheus.CounterValue, float64(s.count.Load()),
			append(r.labels(), r.DryRun, strconv.Itoa(r.Code))...)
		if s.timed.Load() == 0 {
			continue
		}
		r.Code = 0
		add(durations, r, s)
		r.DryRun = ""
		add(slis, r, s)
	}
	for r, h := range durations {
		out <- h.metric(q.duration, duration, append(r.labels(), r.DryRun)...)
	}
	for r, h := range slis {
		out <- h.metric(q.sli, sli, r.labels()...)
	}
}

func (r Request) labels() []string {
	return []string{r.Verb, r.Group, r.Version, r.Resource, r.Subresource, r.Scope}
}

// histogram is the sum of several series.
type histogram struct {
	sum     int64 // nanoseconds
	buckets [buckets]uint64
}

func add(all map[Request]*histogram, r Request, s *series) {
	h := all[r]
	if h == nil {
		h = &histogram{}
		all[r] = h
	}
	h.sum += s.sum.Load()
	for i := range s.buckets {
		h.buckets[i] += s.buckets[i].Load()
	}
}

func (h *histogram) metric(desc *prometheus.Desc, of []float64, labels ...string) prometheus.Metric {
	total, cumulative := uint64(0), make(map[float64]uint64, len(of))
	for i, n := range h.buckets {
		total += n
		if i < len(bounds) && slices.Contains(of, bounds[i]) {
			cumulative[bounds[i]] = total
		}
	}
	return prometheus.MustNewConstHistogram(desc, total, time.Duration(h.sum).Seconds(), cumulative, labels...)
}
