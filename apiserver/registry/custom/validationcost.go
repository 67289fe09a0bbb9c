package custom

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	// maxSteps is the maximum number of steps to validate an object against its schema. It takes less than ten seconds,
	// because a step of a regular expression takes at most about 8 ns.
	maxSteps = 1_000_000_000
	// valueSteps, propertySteps and enumSteps are the steps of upstream's validator for a value, for each property of its
	// schema, and for each value of an enumeration.
	valueSteps, propertySteps, enumSteps = 400, 80, 10
)

// ValidationCost estimates the steps to validate values against a schema. A schema of 3 MB with a megabyte of patterns
// takes hours for a text of 1 MB.
type ValidationCost struct {
	patterns map[string]int // sizes by pattern
	size     int            // of all patterns and enumerations
	values   int            // steps for a value that every part of the schema checks
}

// ValidationCostOf returns the ValidationCost of a schema.
func ValidationCostOf(s *apiextensionsv1.JSONSchemaProps) *ValidationCost {
	w := &ValidationCost{patterns: map[string]int{}}
	EachSchema(s, func(s *apiextensionsv1.JSONSchemaProps) {
		if s.Pattern != "" {
			if w.patterns[s.Pattern] == 0 {
				w.patterns[s.Pattern] = sizeOfPattern(s.Pattern)
			}
			w.size += w.patterns[s.Pattern]
		}
		w.size += len(s.Enum)
		w.values += valueSteps + propertySteps*len(s.Properties) + enumSteps*len(s.Enum)
	})
	return w
}

// Exceeds returns an error with the path of the value if the validation of value takes more than maxSteps.
func (w *ValidationCost) Exceeds(value any, s *spec.Schema, at *field.Path) *field.Error {
	left := stepBudget{w, maxSteps}
	return left.exceeds(value, s, at)
}

// stepBudget counts the remaining steps of one validation.
type stepBudget struct {
	*ValidationCost
	left int
}

func (w *stepBudget) exceeds(x any, s *spec.Schema, at *field.Path) *field.Error {
	where, ok := w.ofValue(x, s)
	if ok {
		return nil
	}
	for i := len(where) - 1; i >= 0; i-- {
		if n, ok := where[i].(int); ok && at != nil {
			at = at.Index(n)
		} else {
			at = at.Child(fmt.Sprint(where[i]))
		}
	}
	return field.Forbidden(at,
		fmt.Sprintf("validation of the object takes more than %d steps: "+
			"its strings, lists or maps are too long for the schema's patterns and alternatives", maxSteps))
}

// ofValue subtracts the steps of a value. If too few remain, it returns false and the path to the value, outermost
// element last.
func (w *stepBudget) ofValue(x any, s *spec.Schema) (where []any, ok bool) {
	w.left -= valueSteps + enumSteps*len(s.Enum)
	switch x := x.(type) {
	case string:
		if n := w.patterns[s.Pattern]; n > 0 {
			w.left -= n * min(len(x)+1, maxSteps/n+1)
		}
	case map[string]any:
		where = w.ofObject(x, s)
	case []any:
		where = w.ofList(x, s)
	}
	if where != nil || w.left < 0 {
		return where, false
	}
	for _, all := range [][]spec.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range all {
			if where, ok = w.ofValue(x, &all[i]); !ok {
				return where, false
			}
		}
	}
	if s.Not != nil {
		if where, ok = w.ofValue(x, s.Not); !ok {
			return where, false
		}
	}
	return nil, w.left >= 0
}

// ofObject subtracts the steps of an object's fields. It returns nil, or the path if too few remain.
func (w *stepBudget) ofObject(x map[string]any, s *spec.Schema) []any {
	w.left -= propertySteps * len(s.Properties)
	for name, value := range x {
		member, known := s.Properties[name]
		if !known {
			if s.AdditionalProperties == nil || s.AdditionalProperties.Schema == nil {
				continue
			}
			member = *s.AdditionalProperties.Schema
		}
		if where, ok := w.ofValue(value, &member); !ok {
			return append(where, name)
		}
	}
	return nil
}

// ofList is ofObject for the items of a list.
func (w *stepBudget) ofList(x []any, s *spec.Schema) []any {
	if s.Items == nil || s.Items.Schema == nil {
		return nil
	}
	for i, item := range x {
		if where, ok := w.ofValue(item, s.Items.Schema); !ok {
			return append(where, i)
		}
	}
	return nil
}

// defaultsExceed returns an error if the validation of a schema's defaults takes more than maxSteps.
func defaultsExceed(s *apiextensionsv1.JSONSchemaProps, at *field.Path) *field.Error {
	bytes := 0
	EachSchema(s, func(s *apiextensionsv1.JSONSchemaProps) {
		if s.Default != nil {
			bytes += len(s.Default.Raw)
		}
	})
	if bytes == 0 {
		return nil
	}
	w := ValidationCostOf(s)
	if (w.size == 0 || bytes <= maxSteps/w.size) && bytes <= maxSteps/w.values { // no default can exceed the limit
		return nil
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(s, internal, nil); err != nil {
		return field.Invalid(at, nil, err.Error())
	}
	decoded := &spec.Schema{}
	if err := validation.ConvertJSONSchemaProps(internal, decoded); err != nil {
		return field.Invalid(at, nil, err.Error())
	}
	left := stepBudget{w, maxSteps}
	return left.ofDefaults(decoded, at)
}

// ofDefaults subtracts the steps of all defaults in a schema. It visits the places where a structural schema may have
// defaults.
func (w *stepBudget) ofDefaults(s *spec.Schema, at *field.Path) *field.Error {
	if s.Default != nil {
		if err := w.exceeds(s.Default, s, at.Child("default")); err != nil {
			return err
		}
	}
	for name := range s.Properties {
		member := s.Properties[name]
		if err := w.ofDefaults(&member, at.Child("properties").Key(name)); err != nil {
			return err
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		return w.ofDefaults(s.Items.Schema, at.Child("items"))
	}
	return nil
}
