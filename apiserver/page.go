package apiserver

import (
	"net/http"

	"github.com/go-chi/chi/v5"
)

// page serves the dashboard without authentication. Its content comes from the API, with the token that the user
// enters. There is no cookie: a browser would send it to every port of the host, where a pod may listen.
func page(r chi.Router, web http.Handler) {
	r.Use(securityHeaders)
	r.Method(http.MethodGet, "/", web)
	r.Method(http.MethodGet, "/ui/*", http.StripPrefix("/ui", web))
}

// securityHeaders adds headers to those of the page: browsers must not guess content types or send a Referer.
func securityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}
