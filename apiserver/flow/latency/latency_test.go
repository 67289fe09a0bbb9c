package latency

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// vectors has the same metrics as vectors of Prometheus' client library.
type vectors struct {
	requests      *prometheus.CounterVec
	duration, sli *prometheus.HistogramVec
}

func newVectors(reg *prometheus.Registry) vectors {
	component := prometheus.Labels{"component": "apiserver"}
	labels := []string{"verb", "group", "version", "resource", "subresource", "scope"}
	dry := append(append([]string{}, labels...), "dry_run")
	v := vectors{
		prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "apiserver_request_total",
				Help:        "Number of requests by verb, resource, subresource, scope and HTTP code.",
				ConstLabels: component}, append(append([]string{}, dry...), "code")),
		prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: "apiserver_request_duration_seconds",
				Help:    "Response latency in seconds, without watches and streams.",
				Buckets: duration, ConstLabels: component}, dry),
		prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: "apiserver_request_sli_duration_seconds",
				Help:    "Response latency in seconds, for service level indicators.",
				Buckets: sli, ConstLabels: component}, labels),
	}
	reg.MustRegister(v.requests, v.duration, v.sli)
	return v
}

// The scraped text equals that of Prometheus' own vectors.
func TestScrapesLikeVectors(t *testing.T) {
	t.Parallel()
	if all := (series{}); len(all.buckets) != len(bounds)+1 {
		t.Fatalf("%d buckets for %d bounds", len(all.buckets), len(bounds))
	}
	ours, theirs, q := prometheus.NewRegistry(), prometheus.NewRegistry(), New()
	ours.MustRegister(q)
	v := newVectors(theirs)
	var observers sync.WaitGroup
	for _, r := range []Request{
		{"GET", "", "v1", "pods", "", "resource", "", 200}, {"GET", "", "v1", "pods", "", "resource", "", 404},
		{"GET", "", "v1", "pods", "log", "resource", "", 200},
		{"POST", "apps", "v1", "deployments", "", "resource", "All", 201},
		{"POST", "apps", "v1", "deployments", "", "resource", "", 201}, {Verb: "GET", Code: 200},
	} {
		labels := r.labels()
		for _, took := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 250 * time.Millisecond, time.Second,
			7 * time.Second, time.Minute, time.Hour} {
			observers.Go(func() { q.Observe(r, took) })
			v.duration.WithLabelValues(append(labels[:6:6], r.DryRun)...).Observe(took.Seconds())
			v.sli.WithLabelValues(labels...).Observe(took.Seconds())
		}
		code := map[int]string{200: "200", 201: "201", 404: "404"}[r.Code]
		v.requests.WithLabelValues(append(labels[:6:6], r.DryRun, code)...).Add(8)
	}
	watch := Request{"WATCH", "", "v1", "pods", "", "cluster", "", 200}
	q.Count(watch)
	v.requests.WithLabelValues(append(watch.labels(), "", "200")...).Inc()
	observers.Wait()
	if is, want := text(t, ours), text(t, theirs); is != want {
		t.Errorf("got\n%s\nwant\n%s", is, want)
	}
}

func text(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func BenchmarkObserve(b *testing.B) {
	q, r := New(), Request{"GET", "", "v1", "pods", "", "resource", "", 200}
	b.ReportAllocs()
	for b.Loop() {
		q.Observe(r, time.Second)
	}
}
