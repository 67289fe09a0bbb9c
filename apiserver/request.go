package apiserver

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/client"
	"monopod/apiserver/client/query"
)

// verbOf is what a request does, in Kubernetes' words: get, list, watch, create,
// update, patch, delete or deletecollection.
func verbOf(r *http.Request, ref client.Ref) string {
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

// checkVerb is 405 for what the resource has no verb for.
func checkVerb(r *http.Request, t target) error {
	if t.ref.Subresource == "" && !t.res.Can(verbOf(r, t.ref)) {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	return nil
}
