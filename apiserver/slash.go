package apiserver

import (
	"monopod/apiserver/request"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
)

// trimSlash routes a path of the API that ends in a slash like the one without, as
// upstream's router does. What is passed on keeps it, and so does what the
// authorizer sees.
func trimSlash(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		if strings.HasSuffix(path, "/") && strings.HasPrefix(path, "/api") && !request.IsProxied(r) {
			if r.URL.RawPath == "" {
				path = r.URL.Path // the router matches the plain path
			}
			chi.RouteContext(r.Context()).RoutePath = strings.TrimRight(path, "/")
		}
		next.ServeHTTP(w, r)
	})
}
