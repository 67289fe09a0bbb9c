package registry

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/client"
	"monopod/store"
)

// apiError translates an error of the store. It returns any other error, and nil, unchanged.
func apiError(err error, res *Resource, name string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound):
		return apierrors.NewNotFound(res.GVR.GroupResource(), name)
	case errors.Is(err, store.ErrExpired):
		return ErrExpired("too old resource version: " + err.Error())
	case errors.Is(err, store.ErrFuture):
		return errFuture(err)
	case errors.Is(err, store.ErrClosed):
		return apierrors.NewServiceUnavailable("the server is shutting down")
	case errors.Is(err, store.ErrUnavailable):
		return apierrors.NewServiceUnavailable(err.Error())
	case errors.Is(err, store.ErrNoSpace):
		return errNoSpace(err)
	}
	return err
}

// ErrExpired returns 410: the client must list again.
func ErrExpired(message string) *apierrors.StatusError { return apierrors.NewResourceExpired(message) }

// errFuture returns upstream's error for a future revision: a timeout after which the client
// retries.
func errFuture(err error) error {
	e := apierrors.NewTimeoutError("Too large resource version: "+err.Error(), 1)
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return e
}

func errNoSpace(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: "InsufficientStorage",
		Message: "nothing was written: " + err.Error(),
	}}
}

func errBadRequest(message string) error { return apierrors.NewBadRequest(message) }

func errNoResource(gvr schema.GroupVersionResource) error {
	e := apierrors.NewGenericServerResponse(http.StatusNotFound, "", gvr.GroupResource(), "",
		"", 0, false)
	e.ErrStatus.Message = "the server could not find the requested resource"
	return e
}

func errNoSubresource(ref client.Ref) error {
	e := apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	e.ErrStatus.Message = fmt.Sprintf("%s has no subresource %q", ref.Resource.GroupResource(), ref.Subresource)
	return e
}

// maxCauses limits the errors in one response, because the time for its message grows with their
// square.
const maxCauses = 256

// errInvalid returns 422 with the invalid fields.
func errInvalid(res *Resource, name string, errs field.ErrorList) error {
	return apierrors.NewInvalid(res.GVK().GroupKind(), name, errs[:min(len(errs), maxCauses)])
}

// errConflict returns 409 for an object that is not in the state that the client expects.
func errConflict(res *Resource, name, why string) error {
	return apierrors.NewConflict(res.GVR.GroupResource(), name, errors.New(why))
}

// errModified returns the conflict after which clients read the object again.
func errModified(res *Resource, name string) error {
	return errConflict(res, name, "the object has been modified; please apply your changes to the latest version and try again")
}

// ErrFutureRevision returns the error for a request at a future revision.
func ErrFutureRevision(asked, now int64) error {
	return errFuture(fmt.Errorf("%d, current: %d", asked, now))
}

// errCreation returns 405 for a resource that does not support the creation of the named object; 403 if it ends.
func errCreation(res *Resource, name string) error {
	if res.Ending == "" {
		return apierrors.NewMethodNotSupported(res.GVR.GroupResource(), "create")
	}
	return apierrors.NewForbidden(res.GVR.GroupResource(), name, errors.New(res.Ending))
}
