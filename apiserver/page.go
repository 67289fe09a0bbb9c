package apiserver

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"monopod/apiserver/auth"
)

// page serves the dashboard to everybody; what it shows comes from the API,
// which wants the token. POST /login keeps the token in a cookie that scripts
// cannot read and other sites cannot send.
func (s *Server) page(r chi.Router) {
	r.Use(securityHeaders)
	r.Post("/login", s.login)
	r.Post("/logout", s.logout)
	r.Method(http.MethodGet, "/", s.Web)
	r.Method(http.MethodGet, "/ui/*", http.StripPrefix("/ui", s.Web))
}

// securityHeaders let the page load its own files and nothing else.
func securityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

// maxLogin is the largest body of a login, in bytes: anybody may send one.
const maxLogin = 64 << 10

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	token := r.FormValue("token")
	if !s.knows(r, token) {
		http.Error(w, "wrong token: it stands in admin.kubeconfig in the data folder", http.StatusUnauthorized)
		return
	}
	s.setCookie(w, token, 0)
	w.WriteHeader(http.StatusNoContent)
}

// knows says that the token is somebody's, wherever the request comes from.
func (s *Server) knows(r *http.Request, token string) bool {
	ctx, cancel := auth.ForToken(r.Context(), []string{auth.Audience})
	defer cancel()
	_, ok := s.Authenticator.Authenticate(withToken(ctx, token))
	return ok
}

func (s *Server) logout(w http.ResponseWriter, _ *http.Request) {
	s.setCookie(w, "", -1)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) setCookie(w http.ResponseWriter, token string, maxAge int) {
	http.SetCookie(w, &http.Cookie{
		Name: auth.Cookie, Value: token, Path: "/", MaxAge: maxAge,
		HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode,
	})
}
