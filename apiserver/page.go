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

// securityHeaders allow the page to load only its own files.
func securityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}
