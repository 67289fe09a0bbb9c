package apiserver

import (
	"net/http"
	"slices"
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"monopod/apiserver/registry"
)

// heard is r with a context under which the registry's warnings about a write
// become headers of the answer. That the resource is deprecated is told at once,
// whatever the request.
func heard(w http.ResponseWriter, r *http.Request, res *registry.Resource) *http.Request {
	if res.Deprecated != "" {
		addWarning(w.Header(), res.Deprecated)
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return r
	}
	return r.WithContext(registry.WithWarnings(r.Context(), func(text string) { _ = addWarning(w.Header(), text) }))
}

// addWarning puts text beside the warnings there are, once: a write may run again.
// It is false when there is no room for more.
func addWarning(h http.Header, text string) bool {
	value, err := utilnet.NewWarningHeader(299, "-", headline(text))
	there := h.Values("Warning")
	if err != nil || slices.Contains(there, value) {
		return true
	}
	total := utf8.RuneCountInString(value)
	for _, v := range there {
		total += utf8.RuneCountInString(v)
	}
	if total > maxWarnings {
		return false
	}
	h.Add("Warning", value)
	return true
}
