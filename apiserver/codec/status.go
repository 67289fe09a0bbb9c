package codec

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrTimeout returns upstream's error for a request that takes too long.
func ErrTimeout() *apierrors.StatusError {
	return apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
}

// tookTooLong reports whether the request's deadline has passed, or its client has left.
func tookTooLong(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Success returns the Status of a request without another response.
func Success(code int32, details *metav1.StatusDetails) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess, Code: code, Details: details,
	}
}

// RetryAfter sets the header Retry-After from the Status.
func RetryAfter(w http.ResponseWriter, status *metav1.Status) {
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
}

// StatusOf returns the Status of an error. An error that is not an API error becomes an internal error.
func StatusOf(err error) *metav1.Status {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		var tooLarge *http.MaxBytesError
		switch {
		case errors.As(err, &tooLarge):
			api = apierrors.NewRequestEntityTooLargeError("limit is " + strconv.Itoa(MaxBody))
		case tookTooLong(err):
			api = ErrTimeout()
		default:
			api = apierrors.NewInternalError(err)
		}
	}
	status := api.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	return &status
}
