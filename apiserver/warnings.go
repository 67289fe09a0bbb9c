package apiserver

import (
	"net/http"

	"monopod/apiserver/codec"
	"monopod/apiserver/registry"
)

// heard is r with a context under which the registry's warnings about a write
// become headers of the answer. That the resource is deprecated is told at once,
// whatever the request.
func heard(w http.ResponseWriter, r *http.Request, res *registry.Resource) *http.Request {
	if res.Deprecated != "" {
		codec.AddWarning(w.Header(), res.Deprecated)
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return r
	}
	return r.WithContext(registry.WithWarnings(r.Context(), func(text string) { _ = codec.AddWarning(w.Header(), text) }))
}
