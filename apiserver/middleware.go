package apiserver

import (
	"errors"
	"net/http"
	"runtime/debug"

	"github.com/go-chi/chi/v5/middleware"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/access/auth"
)

// maxBody is the largest request body, in bytes (upstream: 3 MiB).
const maxBody = 3 << 20

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
			s.Log.Error("request panicked", zap.String("method", r.Method), zap.String("path", r.URL.Path),
				zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			if ww, ok := w.(middleware.WrapResponseWriter); ok && ww.Status() != 0 {
				panic(http.ErrAbortHandler)
			}
			s.fail(w, r, apierrors.NewInternalError(errors.New("the server made a mistake, see its log")))
		}()
		next.ServeHTTP(w, r)
	})
}

// limitBody bounds all bodies but those that go on to somebody else. What asks for
// a stream has none, unless it only says that it does.
func (s *Server) limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hasBody(r) && !isProxied(r) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		}
		next.ServeHTTP(w, r)
	})
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

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
			s.fail(w, r, err)
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
		if err := s.crossOrigin.Check(asWrite(r)); err != nil {
			return user, apierrors.NewForbidden(chiResource(r), "", err)
		}
	}
	return user, nil
}

// asWrite is r as the check for other origins should see it. A browser lets any
// page open a WebSocket, with a GET, and a stream can do more than read.
func asWrite(r *http.Request) *http.Request {
	if !isUpgrade(r) {
		return r
	}
	w := r.Clone(r.Context())
	w.Method = http.MethodPost
	return w
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, errNotFoundPath())
}

func (s *Server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, apierrors.NewMethodNotSupported(chiResource(r), r.Method))
}
