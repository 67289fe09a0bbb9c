package request

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/images"
	"monopod/apiserver/kit/query"
)

// Verb returns the Kubernetes verb of a request: get, list, watch, create, update, patch, delete or
// deletecollection.
func Verb(r *http.Request, ref client.Ref) string {
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if ref.Name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	switch {
	case ref.Name != "":
		return "get"
	case wantsWatch(r):
		return "watch"
	}
	return "list"
}

func wantsWatch(r *http.Request) bool {
	watch, err := query.Bool(r.URL.Query(), "watch")
	return err == nil && watch
}

// CheckQuery refuses an invalid query. Otherwise its invalid parts would be ignored, and a deletion could lose its
// selector.
func CheckQuery(r *http.Request) error {
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return apierrors.NewBadRequest("the query of the request is not valid: " + err.Error())
	}
	return nil
}

// Ref returns the object that the path refers to.
func Ref(r *http.Request) client.Ref {
	return client.Ref{
		Resource: schema.GroupVersionResource{
			Group: param(r, "group"), Version: param(r, "version"), Resource: param(r, "resource")},
		Namespace:   param(r, "namespace"),
		Name:        param(r, "name"),
		Subresource: param(r, "subresource"),
	}
}

// param returns a part of the path. The router matches the path with its escapes.
func param(r *http.Request, name string) string {
	raw := chi.URLParam(r, name)
	if plain, err := url.PathUnescape(raw); err == nil && r.URL.RawPath != "" {
		return plain
	}
	return raw
}

// IsWatch reports whether the request watches a list.
func IsWatch(r *http.Request, ref client.Ref) bool {
	return r.Method == http.MethodGet && ref.Name == "" && strings.Contains(r.URL.RawQuery, "watch") && wantsWatch(r)
}

// IsProxied reports whether the request is proxied to a pod, a Service or a node. An escaped slash is part of a name,
// as for the router.
func IsProxied(r *http.Request) bool {
	path := r.URL.EscapedPath()
	parts := strings.SplitN(strings.TrimPrefix(path, "/api/v1/"), "/", 6)
	if len(parts) > 4 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	return len(parts) > 2 && parts[2] == "proxy" && strings.HasPrefix(path, "/api/v1/")
}

// IsUnbounded reports whether the body of the request may have any size and take any time, because it is proxied or an
// archive of images.
func IsUnbounded(r *http.Request) bool { return IsProxied(r) || r.URL.Path == images.Path }

// IsUpgrade reports whether the client requests to upgrade the connection to another protocol.
func IsUpgrade(r *http.Request) bool {
	return strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade")
}

// HasBody reports whether the request has a body, which may be empty.
func HasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 // HTTP/2 always makes a body
}

// AsWrite returns an upgrade request as a POST, for the cross-origin check: any page can open a WebSocket with a GET,
// and a stream can do more than read.
func AsWrite(r *http.Request) *http.Request {
	if !IsUpgrade(r) {
		return r
	}
	w := r.Clone(r.Context())
	w.Method = http.MethodPost
	return w
}
