package apiserver

import (
	"net/http"

	"github.com/go-chi/chi/v5"
)

// page serves the dashboard to everybody; its content comes from the API, with the token that the user enters.
// There is no cookie: a browser would send it to every port of the host, where a pod may listen.
func page(r chi.Router, web http.Handler) {
	r.Use(securityHeaders)
	r.Method(http.MethodGet, "/", web)
	r.Method(http.MethodGet, "/ui/*", http.StripPrefix("/ui", web))
}

// securityHeaders add to the policy that the page itself sets: its files are what their types say, and their address
// stays with them.
func securityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}
