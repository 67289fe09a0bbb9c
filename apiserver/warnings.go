package apiserver

import (
	"net/http"
	"slices"
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"monopod/apiserver/registry"
)

// heard is r with a context under which the registry's warnings about a write
// become headers of the answer.
func heard(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return r
	}
	return r.WithContext(registry.WithWarnings(r.Context(), func(text string) { addWarning(w.Header(), text) }))
}

// addWarning puts text beside the warnings there are, once: a write may run again.
func addWarning(h http.Header, text string) {
	value, err := utilnet.NewWarningHeader(299, "-", headline(text))
	there := h.Values("Warning")
	if err != nil || slices.Contains(there, value) {
		return
	}
	total := utf8.RuneCountInString(value)
	for _, v := range there {
		total += utf8.RuneCountInString(v)
	}
	if total <= maxWarnings {
		h.Add("Warning", value)
	}
}
