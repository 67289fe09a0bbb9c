package apiserver

import (
	"errors"
	"net/http"
	"runtime/debug"

	"github.com/go-chi/chi/v5/middleware"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/process/guard"
	"monopod/apiserver/request"
)

// recoverPanic makes a panic in a handler a 500 and nothing else; an answer
// that has begun is cut off.
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
			value, stack := p, debug.Stack()
			if beside, ok := p.(*guard.Panic); ok { // of another goroutine of the request
				value, stack = beside.Value, beside.Stack
			}
			s.Log.Error("request panicked", zap.String("method", r.Method), zap.String("path", r.URL.Path),
				zap.Any("panic", value), zap.ByteString("stack", stack))
			if ww, ok := w.(middleware.WrapResponseWriter); ok && ww.Status() != 0 {
				panic(http.ErrAbortHandler)
			}
			s.out.Fail(w, r, apierrors.NewInternalError(errors.New("the server made a mistake, see its log")))
		}()
		next.ServeHTTP(w, r)
	})
}

// limitBody bounds all bodies but those that go on to somebody else. What asks for
// a stream has none, unless it only says that it does.
func (s *Server) limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if request.HasBody(r) && !request.IsProxied(r) {
			r.Body = http.MaxBytesReader(w, r.Body, codec.MaxBody)
		}
		next.ServeHTTP(w, r)
	})
}

// identify notes who a request comes from; nobody is turned away.
func (s *Server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, ok := s.Authenticator.Authenticate(r); ok {
			r = r.WithContext(auth.WithUser(r.Context(), user))
		}
		next.ServeHTTP(w, r)
	})
}

// authenticate lets known users in, as themselves or as whom they may
// impersonate.
func (s *Server) authenticate(next http.Handler) http.Handler {
	next = s.impersonate(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := s.whoIs(r)
		if err != nil {
			s.out.Fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(auth.WithUser(r.Context(), user)))
	})
}

// whoIs is the user that a request comes from, or a 401. A browser sends a client
// certificate along with what any page asks for, so that then the page must be
// ours, or it is a 403.
func (s *Server) whoIs(r *http.Request) (auth.User, error) {
	if err := auth.TakeSocketToken(r); err != nil {
		return auth.User{}, apierrors.NewUnauthorized(err.Error())
	}
	user, ok := auth.Known(r.Context())
	if !ok {
		user, ok = s.Authenticator.Authenticate(r)
	}
	if !ok {
		return user, apierrors.NewUnauthorized("Unauthorized")
	}
	if auth.HasCertificate(r) {
		if err := s.crossOrigin.Check(request.AsWrite(r)); err != nil {
			return user, apierrors.NewForbidden(request.GroupResource(r), "", err)
		}
	}
	return user, nil
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.out.Fail(w, r, request.ErrNotFound())
}

func (s *Server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	s.out.Fail(w, r, apierrors.NewMethodNotSupported(request.GroupResource(r), r.Method))
}
