package dra

import (
	"sync"

	"github.com/google/cel-go/cel"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// environmentOf returns the environment of selectors: Kubernetes' functions, and the device.
var environmentOf = sync.OnceValues(func() (*cel.Env, error) {
	all, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 31), EnvOptions: []cel.EnvOption{cel.Variable("device", cel.DynType)},
	})
	if err != nil {
		return nil, err
	}
	return all.Env(environment.StoredExpressions)
})

// expression checks that a selector compiles to a boolean. The fields of devices are not checked: they depend on the driver.
func expression(text string, at *field.Path) field.ErrorList {
	switch {
	case text == "":
		return field.ErrorList{field.Required(at, "")}
	case len(text) > resourcev1.CELSelectorExpressionMaxLength:
		return field.ErrorList{field.TooLong(at, "", resourcev1.CELSelectorExpressionMaxLength)}
	}
	env, err := environmentOf()
	if err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return field.ErrorList{field.Invalid(at, text, "compilation failed: "+issues.String())}
	}
	if out := ast.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return field.ErrorList{field.Invalid(at, text, "must evaluate to bool or the unknown type, not "+out.String())}
	}
	return nil
}
