package apiserver

import (
	"net/http"
	"net/http/pprof"

	"github.com/go-chi/chi/v5"
)

// profiles are Go's own, for whoever may read these paths: where time and memory go.
func profiles(r chi.Router) {
	r.Get("/debug/pprof", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/debug/pprof/", http.StatusMovedPermanently)
	})
	r.HandleFunc("/debug/pprof/*", pprof.Index)
	r.Get("/debug/pprof/cmdline", pprof.Cmdline)
	r.Get("/debug/pprof/profile", pprof.Profile)
	r.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	r.Get("/debug/pprof/trace", pprof.Trace)
}
