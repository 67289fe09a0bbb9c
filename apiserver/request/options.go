package request

import (
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/query"
)

// PatchOptions returns the options of a patch. As upstream, only an apply can be forced, and it needs a field manager.
func PatchOptions(r *http.Request, typ types.PatchType) (*metav1.PatchOptions, error) {
	query := r.URL.Query()
	opts := &metav1.PatchOptions{FieldManager: query.Get("fieldManager")}
	if text := query.Get("force"); text != "" {
		force, err := strconv.ParseBool(text)
		if err != nil {
			return nil, apierrors.NewBadRequest("force: " + err.Error())
		}
		opts.Force = &force
	}
	return opts, ErrOptions(r, metavalidation.ValidatePatchOptions(opts, typ))
}

// ErrOptions returns a 422 error for invalid options in a request's query, or nil without errors.
func ErrOptions(r *http.Request, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return InvalidOptions(map[string]string{
		http.MethodPost: "CreateOptions", http.MethodPut: "UpdateOptions",
		http.MethodPatch: "PatchOptions", http.MethodDelete: "DeleteOptions",
	}[r.Method], errs)
}

// QueryDeleteOptions parses the options of a deletion in its query into opts. It returns a 400 error for an invalid
// value.
func QueryDeleteOptions(q url.Values, opts *metav1.DeleteOptions) error {
	if v := q.Get("gracePeriodSeconds"); v != "" {
		grace, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return apierrors.NewBadRequest(
				"gracePeriodSeconds: Invalid value: " + strconv.Quote(v) + ": must be a whole number of seconds")
		}
		opts.GracePeriodSeconds = &grace
	}
	if v := q.Get("propagationPolicy"); v != "" {
		opts.PropagationPolicy = new(metav1.DeletionPropagation(v))
	}
	if q.Has("orphanDependents") {
		orphan, err := query.Bool(q, "orphanDependents")
		if err != nil {
			return err
		}
		opts.OrphanDependents = &orphan
	}
	return nil
}

// IncludeObject parses includeObject: which part of its object a table row contains.
func IncludeObject(r *http.Request) (metav1.IncludeObjectPolicy, error) {
	opts := metav1.TableOptions{IncludeObject: metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))}
	if opts.IncludeObject == "" {
		return metav1.IncludeMetadata, nil
	}
	if errs := metavalidation.ValidateTableOptions(&opts); len(errs) > 0 {
		return "", InvalidOptions("TableOptions", errs)
	}
	return opts.IncludeObject, nil
}

// InvalidOptions returns a 422 error for options of a kind.
func InvalidOptions(kind string, errs field.ErrorList) error {
	return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind(kind).GroupKind(), "", errs)
}
