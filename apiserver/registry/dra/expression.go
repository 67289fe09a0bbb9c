package dra

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/dynamic-resource-allocation/cel"
)

// expression checks that a selector compiles to a boolean and that its cost is within the limit. It does not check
// names of attributes, which depend on the driver. The compiler is created on first use.
func expression(text string, at *field.Path) field.ErrorList {
	switch {
	case text == "":
		return field.ErrorList{field.Required(at, "")}
	case len(text) > resourcev1.CELSelectorExpressionMaxLength:
		return field.ErrorList{field.TooLong(at, "", resourcev1.CELSelectorExpressionMaxLength)}
	}
	result := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(text, cel.Options{})
	switch err := result.Error; {
	case err != nil && err.Type == apiservercel.ErrorTypeInternal:
		return field.ErrorList{field.InternalError(at, err)}
	case err != nil:
		return field.ErrorList{field.Invalid(at, text, err.Detail)}
	case result.MaxCost > resourcev1.CELSelectorExpressionMaxCost:
		return field.ErrorList{field.Forbidden(at, "too complex, exceeds cost limit")}
	}
	return nil
}
