package request

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrNotFound returns the 404 error for a path that is not served.
func ErrNotFound() error {
	e := apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false)
	e.ErrStatus.Message = "the server could not find the requested resource"
	return e
}

// GroupResource returns the resource of a routed request.
func GroupResource(r *http.Request) schema.GroupResource {
	return schema.GroupResource{Group: chi.URLParam(r, "group"), Resource: chi.URLParam(r, "resource")}
}
