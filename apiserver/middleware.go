package apiserver

import (
	"errors"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/codec"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/registry"
	"monopod/apiserver/request"
)

// recoverPanic turns a panic in a handler into a 500 response, or aborts a response that has begun.
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
			s.panicked(r.Method, r.URL.Path, p)
			if ww, ok := w.(middleware.WrapResponseWriter); ok && ww.Status() != 0 {
				panic(http.ErrAbortHandler)
			}
			s.out.Fail(w, r, apierrors.NewInternalError(errors.New("unexpected panic; the log of the server has the details")))
		}()
		next.ServeHTTP(w, r)
	})
}

// panicked counts and logs a panic.
func (s *Server) panicked(method, path string, failure any) {
	s.counters.panics.Inc()
	value, stack := failure, debug.Stack()
	if raised, ok := failure.(*guard.Panic); ok { // from another goroutine of the request
		value, stack = raised.Value, raised.Stack
	}
	s.cfg.Log.Error("request panicked", zap.String("method", method), zap.String("path", path),
		zap.Any("panic", value), zap.ByteString("stack", stack))
}

// trimSlash routes an API path with a trailing slash like the one without, as upstream's router does. Proxied
// paths keep the slash, and so does the path that the authorizer sees.
func trimSlash(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		if strings.HasSuffix(path, "/") && strings.HasPrefix(path, "/api") && !request.IsProxied(r) {
			if r.URL.RawPath == "" {
				path = r.URL.Path // the router matches the unescaped path
			}
			chi.RouteContext(r.Context()).RoutePath = strings.TrimRight(path, "/")
		}
		next.ServeHTTP(w, r)
	})
}

// withWarnings returns r with a context in which the registry's warnings about a write become headers of the response.
// It also adds the warning about a deprecated resource.
func withWarnings(w http.ResponseWriter, r *http.Request, res *registry.Resource) *http.Request {
	if res.Deprecated != "" {
		codec.AddWarning(w.Header(), res.Deprecated)
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return r
	}
	warn := func(text string) { _ = codec.AddWarning(w.Header(), text) }
	return r.WithContext(registry.WithWarnings(r.Context(), warn))
}
