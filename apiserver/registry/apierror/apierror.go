// Package apierror creates the API errors of the registry, and translates errors of the store.
package apierror

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/store"
)

// Of translates an error of the store. It returns nil and other errors unchanged.
func Of(err error, res *kind.Resource, name string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound):
		return apierrors.NewNotFound(res.GVR.GroupResource(), name)
	case errors.Is(err, store.ErrExpired):
		return Expired("too old resource version: " + err.Error())
	case errors.Is(err, store.ErrFuture):
		return Future(err)
	case errors.Is(err, store.ErrClosed):
		return apierrors.NewServiceUnavailable("the server is shutting down")
	case errors.Is(err, store.ErrUnavailable):
		return apierrors.NewServiceUnavailable(err.Error())
	case errors.Is(err, store.ErrNoSpace):
		return NoSpace(err)
	}
	return err
}

// Expired returns 410, after which the client must list again.
func Expired(message string) *apierrors.StatusError { return apierrors.NewResourceExpired(message) }

// Future returns upstream's error for a future revision: a timeout, after which the client retries.
func Future(err error) error {
	e := apierrors.NewTimeoutError("Too large resource version: "+err.Error(), 1)
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return e
}

// NoSpace returns 507 for a full disk.
func NoSpace(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: "InsufficientStorage",
		Message: "nothing was written: " + err.Error(),
	}}
}

// BadRequest returns 400.
func BadRequest(message string) error { return apierrors.NewBadRequest(message) }

// NoResource returns 404 for a resource that is not served.
func NoResource(gvr schema.GroupVersionResource) error {
	e := apierrors.NewGenericServerResponse(http.StatusNotFound, "", gvr.GroupResource(), "",
		"", 0, false)
	e.ErrStatus.Message = "the server could not find the requested resource"
	return e
}

// NoSubresource returns 404 for a subresource that the resource does not have.
func NoSubresource(ref client.Ref) error {
	e := apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	e.ErrStatus.Message = fmt.Sprintf("%s has no subresource %q", ref.Resource.GroupResource(), ref.Subresource)
	return e
}

// maxCauses is the maximum number of field errors in one response. The time to build the message grows with their
// square.
const maxCauses = 256

// Invalid returns 422 with the field errors.
func Invalid(res *kind.Resource, name string, errs field.ErrorList) error {
	return apierrors.NewInvalid(res.GVK().GroupKind(), name, errs[:min(len(errs), maxCauses)])
}

// Conflict returns 409 for an object whose state differs from what the client expects.
func Conflict(res *kind.Resource, name, why string) error {
	return apierrors.NewConflict(res.GVR.GroupResource(), name, errors.New(why))
}

// Modified returns the conflict after which clients get the object and retry.
func Modified(res *kind.Resource, name string) error {
	return Conflict(res, name,
		"the object has been modified; please apply your changes to the latest version and try again")
}

// FutureRevision returns the error for a request at a revision that does not exist yet.
func FutureRevision(requested, now int64) error {
	return Future(fmt.Errorf("%d, current: %d", requested, now))
}

// Creation returns the error for a resource that does not support the creation of the named object: 405, or 403 while
// the resource is terminating.
func Creation(res *kind.Resource, name string) error {
	if res.Ending == "" {
		return apierrors.NewMethodNotSupported(res.GVR.GroupResource(), "create")
	}
	return apierrors.NewForbidden(res.GVR.GroupResource(), name, errors.New(res.Ending))
}
