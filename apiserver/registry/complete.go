package registry

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/apierror"
)

// Complete sets the defaults of an object that does not come through the API, and validates it. It does not run
// admission.
func (r *Registry) Complete(obj Object) error {
	res := r.FindFor(obj)
	if res == nil {
		return apierror.BadRequest(fmt.Sprintf("objects of type %T are not served", obj))
	}
	r.complete(res, obj, nil)
	errs := validation.ValidateObjectMetaAccessor(obj, res.Namespaced, res.NameErrors, field.NewPath("metadata"))
	if res.Validate != nil {
		errs = append(errs, res.Validate(obj, nil, "")...)
	}
	if len(errs) > 0 {
		return apierror.Invalid(res, nameOr(obj), errs)
	}
	return nil
}
