package entry

import (
	"net/http"

	"monopod/apiserver/process/guard"
)

// grown calls h with a stack that is large enough at once: each request of HTTP/2 has a new goroutine with a small one.
func grown(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guard.Grow()
		h.ServeHTTP(w, r)
	})
}
