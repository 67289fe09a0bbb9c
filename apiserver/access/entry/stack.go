package entry

import (
	"net/http"
	"runtime"
)

// handlerStack is about what a request's handler needs of its goroutine's stack, in bytes.
const handlerStack = 12 << 10

// grown calls h with a stack that is large enough at once: each request of HTTP/2 has a new goroutine with a small one, which
// would grow, and be copied with all frames of middleware on it, several times.
func grown(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grow()
		h.ServeHTTP(w, r)
	})
}

//go:noinline
func grow() {
	var stack [handlerStack]byte
	runtime.KeepAlive(&stack)
}
