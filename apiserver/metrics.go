package apiserver

import (
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"monopod/apiserver/client"
	"monopod/apiserver/flow"
	"monopod/apiserver/process/guard"
)

// counters are the server's metrics, with upstream's names and labels.
type counters struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sli      *prometheus.HistogramVec
	panics   prometheus.Counter // of requests
}

func newCounters(reg prometheus.Registerer) counters {
	component := prometheus.Labels{"component": "apiserver"}
	c := counters{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total", Help: "Number of requests by verb, resource, subresource, scope and HTTP code.", ConstLabels: component,
		}, append(requestLabels(), "dry_run", "code")),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds", Help: "Response latency in seconds, without watches and streams.",
			Buckets: []float64{0.001, 0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60}, ConstLabels: component,
		}, append(requestLabels(), "dry_run")),
		sli: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_sli_duration_seconds", Help: "Response latency in seconds, for service level indicators.",
			Buckets: []float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}, ConstLabels: component,
		}, requestLabels()),
	}
	reg.MustRegister(c.requests, c.duration, c.sli)
	panics, err := guard.Panics(reg)
	if err != nil {
		panic(err) // as MustRegister
	}
	c.panics = panics.WithLabelValues("request")
	return c
}

// count counts requests when they end. Only names of served resources become labels.
func (s *Server) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ww, from := middleware.NewWrapResponseWriter(w, r.ProtoMajor), time.Now()
		defer func() {
			t, _ := s.targets.find(r) // the zero one if it is not served
			ref := t.ref
			is := []string{flow.MetricVerb(r, ref), ref.Resource.Group, ref.Resource.Version, ref.Resource.Resource, ref.Subresource, scope(r, ref)}
			dry := dryRun(r)
			s.counters.requests.WithLabelValues(append(is, dry, strconv.Itoa(ww.Status()))...).Inc()
			if !t.long(r) {
				took := time.Since(from).Seconds()
				s.counters.duration.WithLabelValues(append(is, dry)...).Observe(took)
				s.counters.sli.WithLabelValues(is...).Observe(took)
			}
		}()
		next.ServeHTTP(ww, r)
	})
}

// requestLabels are the labels of all request metrics.
func requestLabels() []string {
	return []string{"verb", "group", "version", "resource", "subresource", "scope"}
}

// scope is upstream's label for what a request is about: resource, namespace or cluster.
func scope(r *http.Request, ref client.Ref) string {
	switch {
	case ref.Resource.Resource == "":
		return ""
	case ref.Name != "", r.Method == http.MethodPost:
		return "resource"
	case ref.Namespace != "":
		return "namespace"
	}
	return "cluster"
}

// dryRun is upstream's label: All or empty.
func dryRun(r *http.Request) string {
	if r.URL.Query().Get("dryRun") == "All" {
		return "All"
	}
	return ""
}
