package apiserver

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"monopod/apiserver/client"
)

// counters are the server's metrics, with upstream's names and some of its labels.
type counters struct {
	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	longRunning *prometheus.GaugeVec
	panics      prometheus.Counter
}

func newCounters(reg prometheus.Registerer, rooms rooms) counters {
	c := counters{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total", Help: "Requests by verb, resource, subresource and HTTP code.",
		}, []string{"verb", "resource", "subresource", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds", Help: "Time to the end of an answer, of requests that are no watch and no stream.",
			Buckets: []float64{0.001, 0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60},
		}, []string{"verb", "resource"}),
		longRunning: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches and streams under way.",
		}, []string{"verb", "resource", "subresource"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_request_panics_total", Help: "Requests that ended in a panic of the server.",
		}),
	}
	reg.MustRegister(c.requests, c.duration, c.longRunning, c.panics)
	for kind, room := range map[string]interface{ Inside() int }{"readOnly": rooms.reading, "mutating": rooms.writing} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests", Help: "Requests under way that count towards the limit.",
			ConstLabels: prometheus.Labels{"request_kind": kind},
		}, func() float64 { return float64(room.Inside()) }))
	}
	return c
}

// count counts requests once they are answered. Only names that are served
// become labels.
func (s *Server) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ww, from := middleware.NewWrapResponseWriter(w, r.ProtoMajor), time.Now()
		defer func() {
			var ref client.Ref
			if t, err := s.target(r); err == nil {
				ref = t.ref
			}
			verb, resource := metricVerb(r, ref), ref.Resource.Resource
			s.counters.requests.WithLabelValues(verb, resource, ref.Subresource, strconv.Itoa(ww.Status())).Inc()
			if !longRunning(r, ref) {
				s.counters.duration.WithLabelValues(verb, resource).Observe(time.Since(from).Seconds())
			}
		}()
		next.ServeHTTP(ww, r)
	})
}

// metricVerb is what upstream's metrics call a request: the method, but for
// reads of many. The words that strangers invent stay out of the metrics.
func metricVerb(r *http.Request, ref client.Ref) string {
	switch r.Method {
	case http.MethodGet:
		if ref.Resource.Resource != "" {
			return strings.ToUpper(verbOf(r, ref))
		}
		return r.Method
	case http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "other"
}
