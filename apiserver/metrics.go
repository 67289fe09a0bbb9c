package apiserver

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"monopod/apiserver/flow"
	"monopod/apiserver/flow/latency"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

// counters are the server's metrics, with upstream's names and labels.
type counters struct {
	requests *latency.Requests
	panics   prometheus.Counter // of requests
}

func newCounters(reg prometheus.Registerer) counters {
	c := counters{requests: latency.New()}
	reg.MustRegister(c.requests)
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
			is := latency.Request{
				Verb: flow.MetricVerb(r, ref), Group: ref.Resource.Group, Version: ref.Resource.Version, Resource: ref.Resource.Resource,
				Subresource: ref.Subresource, Scope: scope(r, ref), DryRun: dryRun(r), Code: ww.Status(),
			}
			if t.long(r) {
				s.counters.requests.Count(is)
			} else {
				s.counters.requests.Observe(is, time.Since(from))
			}
		}()
		next.ServeHTTP(ww, r)
	})
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
	if r.URL.RawQuery != "" && r.URL.Query().Get("dryRun") == "All" {
		return "All"
	}
	return ""
}
