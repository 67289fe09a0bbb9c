package admissionregistration

import (
	"errors"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"monopod/apiserver/registry/expressions"
)

// maxConditions is the maximum number of match conditions of a webhook.
const maxConditions = 64

// variables are the variables of match conditions besides object, oldObject and request.
var variables = plugincel.OptionalVariableDeclarations{HasAuthorizer: true}

// Compiler returns the compiler of expressions without composed variables. It is created on first use.
var Compiler = sync.OnceValue(func() plugincel.Compiler {
	return plugincel.NewCompiler(expressions.Base())
})

// CompileConditions returns the evaluator of match conditions. An expression that does not compile fails at evaluation.
func CompileConditions(conditions []admissionv1.MatchCondition) plugincel.ConditionEvaluator {
	results := make([]plugincel.CompilationResult, len(conditions))
	for i, c := range conditions {
		results[i] = Compiler().CompileCELExpression(boolean(c.Expression), variables, environment.StoredExpressions)
	}
	return plugincel.NewCondition(results)
}

// ValidateConditions checks match conditions. params reports whether they may use the variable params.
func ValidateConditions(conditions []admissionv1.MatchCondition, params bool, path *field.Path) (errs field.ErrorList) {
	if len(conditions) > maxConditions {
		return field.ErrorList{field.TooMany(path, len(conditions), maxConditions)} // compile none
	}
	may := variables
	may.HasParams = params
	names := map[string]bool{}
	for i, c := range conditions {
		at := path.Index(i)
		if text := strings.TrimSpace(c.Expression); text == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		} else {
			errs = append(errs, Errors(Compiler().CompileCELExpression(boolean(text), may, environment.NewExpressions),
				at.Child("expression"))...)
		}
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		case names[c.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		for _, why := range validation.IsQualifiedName(c.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), c.Name, why))
		}
		names[c.Name] = true
	}
	return errs
}

// Errors returns the compilation error of an expression.
func Errors(result plugincel.CompilationResult, path *field.Path) field.ErrorList {
	switch err := result.Error; {
	case err == nil:
		return nil
	case err.Type == apiservercel.ErrorTypeRequired:
		return field.ErrorList{field.Required(path, err.Detail)}
	case err.Type == apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(path, result.ExpressionAccessor.GetExpression(), err.Detail)}
	default:
		return field.ErrorList{field.InternalError(path, errors.New(err.Detail))}
	}
}
