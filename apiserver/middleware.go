package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/auth"
)

// maxBody is the largest request body, in bytes (upstream: 3 MiB).
const maxBody = 3 << 20

// counters are the server's metrics, with upstream's names.
type counters struct {
	requests *prometheus.CounterVec
	watches  prometheus.Gauge
	panics   prometheus.Counter
}

func newCounters(reg prometheus.Registerer) counters {
	c := counters{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total", Help: "Requests by verb, resource, subresource and HTTP code.",
		}, []string{"verb", "resource", "subresource", "code"}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches under way.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_request_panics_total", Help: "Requests that ended in a panic of the server.",
		}),
	}
	reg.MustRegister(c.requests, c.watches, c.panics)
	return c
}

// count counts requests once they are answered. Only names that are served
// become labels.
func (s *Server) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(ww, r)
		resource, sub := "", ""
		if t, err := s.target(r); err == nil {
			resource, sub = t.ref.Resource.Resource, t.ref.Subresource
		}
		s.counters.requests.WithLabelValues(r.Method, resource, sub, strconv.Itoa(ww.Status())).Inc()
	})
}

// recoverPanic makes a panic in a handler a 500 and nothing else.
func (s *Server) recoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			s.counters.panics.Inc()
			s.Log.Error("request panicked", zap.String("method", r.Method), zap.String("path", r.URL.Path),
				zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			s.fail(w, r, apierrors.NewInternalError(fmt.Errorf("the server made a mistake, see its log")))
		}()
		next.ServeHTTP(w, r)
	})
}

func (s *Server) limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isUpgrade(r) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		}
		next.ServeHTTP(w, r)
	})
}

// authenticate lets known users in; they may do everything.
func (s *Server) authenticate(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := s.Authenticator.Authenticate(r)
		if !ok {
			s.fail(w, r, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		if err := crossOrigin.Check(r); err != nil { // a browser sends its cookie along
			s.fail(w, r, apierrors.NewForbidden(chiResource(r), "", err))
			return
		}
		next.ServeHTTP(w, r.WithContext(auth.WithUser(r.Context(), user)))
	})
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, errNotFoundPath())
}

func (s *Server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, apierrors.NewMethodNotSupported(chiResource(r), r.Method))
}
