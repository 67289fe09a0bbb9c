package access

import (
	"net"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5/middleware"

	"monopod/apiserver/audit"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/request"
)

// Audited records requests in the audit log as the policy requires. about returns the object of a request, and whether
// the request is a watch or a stream; it is nil for non-resource paths.
func (g *Guard) Audited(next http.Handler, about func(*http.Request) (ref client.Ref, long bool)) http.Handler {
	if g.Audit == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := auth.Attributes{User: auth.UserOf(r.Context()), Verb: strings.ToLower(r.Method), Path: r.URL.Path}
		long := false
		if about != nil {
			var ref client.Ref
			ref, long = about(r)
			a = request.Attributes(r, ref)
		}
		record := g.Audit.Begin(a, callerOf(r))
		if record == nil {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Audit-Id", record.ID())
		for key, value := range a.User.Notes {
			record.Annotate(key, value)
		}
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			if p := recover(); p != nil {
				record.Panicked()
				panic(p)
			}
			record.Ended(ww.Status())
		}()
		r = r.WithContext(audit.WithRecord(r.Context(), record))
		if long {
			next.ServeHTTP(&startedWriter{WrapResponseWriter: ww, record: record}, r)
			return
		}
		next.ServeHTTP(ww, r)
	})
}

// AuditedPath is Audited for non-resource paths.
func (g *Guard) AuditedPath(next http.Handler) http.Handler { return g.Audited(next, nil) }

// maxAuditID is the length to which audit IDs of clients are truncated.
const maxAuditID = 64

func callerOf(r *http.Request) audit.Caller {
	c := audit.Caller{URI: r.URL.RequestURI(), UserAgent: r.UserAgent(), ID: r.Header.Get("Audit-Id")}
	if len(c.ID) > maxAuditID {
		c.ID = c.ID[:maxAuditID]
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		c.SourceIPs = []string{host}
	}
	if actor, ok := r.Context().Value(actorKey{}).(auth.User); ok {
		c.Actor = &actor
	}
	return c
}

// startedWriter records the start of a long-running response.
type startedWriter struct {
	middleware.WrapResponseWriter
	record  *audit.Record
	started bool
}

// WriteHeader implements http.ResponseWriter.
func (s *startedWriter) WriteHeader(code int) {
	if !s.started {
		s.started = true
		s.record.Started(code)
	}
	s.WrapResponseWriter.WriteHeader(code)
}
