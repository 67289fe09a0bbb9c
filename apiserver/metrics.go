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
	panics   prometheus.Counter // in handlers
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
		ww, start := middleware.NewWrapResponseWriter(w, r.ProtoMajor), time.Now()
		defer func() {
			t, _ := s.targets.find(r) // the zero target if the resource is not served
			gvr := t.ref.Resource
			labels := latency.Request{
				Verb: flow.MetricVerb(r, t.ref), Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource,
				Subresource: t.ref.Subresource, Scope: scope(r, t.ref), DryRun: dryRun(r), Code: ww.Status(),
			}
			if t.longRunning(r) {
				s.counters.requests.Count(labels)
			} else {
				s.counters.requests.Observe(labels, time.Since(start))
			}
		}()
		next.ServeHTTP(ww, r)
	})
}

// scope returns upstream's label scope: resource, namespace or cluster.
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

// dryRun returns upstream's label dry_run: All or empty.
func dryRun(r *http.Request) string {
	if r.URL.RawQuery != "" && r.URL.Query().Get("dryRun") == "All" {
		return "All"
	}
	return ""
}
