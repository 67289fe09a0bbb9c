package custom

import (
	"errors"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// maxErrors is the maximum number of invalid values with an error of their own. Upstream's validator compares each
// error with all others.
const maxErrors = 200

// errMoreInvalid is the error of further invalid values.
var errMoreInvalid = errors.New("more values are invalid")

// Validator returns a validator of one value for a schema; nil for a nil schema. The limit of errors does not affect
// which values are valid.
func Validator(s *spec.Schema) validation.SchemaValidator {
	if s == nil {
		return nil
	}
	l := &errorLimit{left: maxErrors}
	return validation.NewRatchetingSchemaValidator(s, nil, "", strfmt.Default, l.apply)
}

// errorLimit counts the invalid values of one validation.
type errorLimit struct{ left int }

// apply is an option that makes the validators of fields and items count. Upstream does not pass options on to them.
// apply keeps ratcheting validators.
func (l *errorLimit) apply(o *validate.SchemaValidatorOptions) {
	field, index := o.NewValidatorForField, o.NewValidatorForIndex
	o.NewValidatorForField = func(name string, s *spec.Schema, root any, path string, formats strfmt.Registry,
		opts ...validate.Option) validate.ValueValidator {
		opts = append(opts, l.apply)
		if field == nil {
			return limitedValidator{validate.NewSchemaValidator(s, root, path, formats, opts...), l}
		}
		return limitedValidator{field(name, s, root, path, formats, opts...), l}
	}
	o.NewValidatorForIndex = func(i int, s *spec.Schema, root any, path string, formats strfmt.Registry,
		opts ...validate.Option) validate.ValueValidator {
		opts = append(opts, l.apply)
		if index == nil {
			return limitedValidator{validate.NewSchemaValidator(s, root, path, formats, opts...), l}
		}
		return limitedValidator{index(i, s, root, path, formats, opts...), l}
	}
}

// limitedValidator validates a field or an item unless the limit is reached.
type limitedValidator struct {
	validate.ValueValidator
	limit *errorLimit
}

// Validate implements validate.ValueValidator.
func (v limitedValidator) Validate(value any) *validate.Result {
	full := v.limit.left <= 0
	r := v.ValueValidator.Validate(value)
	switch {
	case len(r.Errors) == 0:
	case full:
		r.Errors = []error{errMoreInvalid}
	default:
		v.limit.left--
	}
	if len(r.Warnings) > maxErrors {
		r.Warnings = r.Warnings[:maxErrors]
	}
	return r
}
