package custom

import (
	"fmt"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"
)

const (
	// maxDefaults is the maximum memory of the defaults that a schema adds to an object, in bytes.
	maxDefaults = 8 << 20
	// maxLookups is the maximum number of property lookups to compute the defaults of an object.
	maxLookups = 20_000_000
	// valueSize is the memory of a default, apart from its text, in bytes.
	valueSize = 100
	// maxPatterns is the maximum size of the compiled patterns of a definition, in instructions of some 40 bytes.
	maxPatterns = 500_000
	// patternOverhead is added to the size of each pattern: upstream copies the list of all patterns for a new one.
	patternOverhead = 200
	// maxAllPatterns is maxPatterns for all definitions since the process started.
	maxAllPatterns = 2 * maxPatterns
	// maxResults is the maximum number of values that the JSONPath of a column may find for each value of the object.
	maxResults = 64
	// MaxDescent is the maximum size of an object that a column with a recursive descent reads, in bytes of JSON. The
	// intermediate results take a hundred times as much memory.
	MaxDescent = 64 << 10
	// MaxColumns is the maximum number of columns of a version.
	MaxColumns = 100
	// MaxCell is the maximum size of the text of a cell, in bytes. Longer texts are truncated.
	MaxCell = 16 << 10
	// RuleTime is the time limit for the rules of an object. Upstream's budget limits only the estimated cost.
	RuleTime = 10 * time.Second
)

// defaultsCost computes the memory of the defaults that a schema adds to an object.
type defaultsCost struct{ size, lookups int }

// ofValue adds the memory of the defaults that s adds to x; false if a limit is exceeded. It follows upstream's
// defaulting.Default.
func (d *defaultsCost) ofValue(x any, s *schema.Structural) bool {
	if s == nil {
		return true
	}
	switch x := x.(type) {
	case map[string]any:
		return d.ofObject(x, s)
	case []any:
		for _, item := range x {
			if !d.ofMember(item, true, s.Items) {
				return false
			}
		}
	}
	return true
}

func (d *defaultsCost) ofObject(x map[string]any, s *schema.Structural) bool {
	if d.lookups += len(s.Properties); d.lookups > maxLookups {
		return false
	}
	for name := range s.Properties {
		property := s.Properties[name]
		if value, ok := x[name]; (ok || property.Default.Object != nil) && !d.ofMember(value, ok, &property) {
			return false
		}
	}
	if s.AdditionalProperties == nil {
		return true
	}
	for name, value := range x {
		if _, known := s.Properties[name]; !known && !d.ofMember(value, true, s.AdditionalProperties.Structural) {
			return false
		}
	}
	return true
}

// ofMember is ofValue for a value that may be missing, or null instead of its default.
func (d *defaultsCost) ofMember(x any, present bool, s *schema.Structural) bool {
	if s == nil {
		return true
	}
	if !present || x == nil && !s.Nullable {
		x = s.Default.Object
		if !d.add(x) {
			return false
		}
	}
	return d.ofValue(x, s)
}

// add adds the memory of one default.
func (d *defaultsCost) add(x any) bool {
	d.size += valueSize
	switch x := x.(type) {
	case string:
		d.size += len(x)
	case map[string]any:
		for name, value := range x {
			if d.size += len(name); !d.add(value) {
				return false
			}
		}
	case []any:
		for _, item := range x {
			if !d.add(item) {
				return false
			}
		}
	}
	return d.size <= maxDefaults
}

// Defaults returns the memory of the defaults that the schema adds to a decoded object.
func Defaults(all map[string]any, s *schema.Structural) (int, error) {
	var d defaultsCost
	if !d.ofObject(all, s) {
		return 0, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("the defaults of its schema would add more than %d MiB to the object", maxDefaults>>20))
	}
	return d.size, nil
}

// CheckCost returns the errors of a definition that exceeds the limits of this file.
func CheckCost(spec *apiextensionsv1.CustomResourceDefinitionSpec) (errs field.ErrorList) {
	for i := range spec.Versions {
		v, path := &spec.Versions[i], field.NewPath("spec", "versions").Index(i)
		if n := len(v.AdditionalPrinterColumns); n > MaxColumns {
			errs = append(errs, field.TooMany(path.Child("additionalPrinterColumns"), n, MaxColumns))
			continue
		}
		for n, column := range v.AdditionalPrinterColumns {
			if !HasBoundedResults(column.JSONPath) {
				errs = append(errs,
					field.Invalid(path.Child("additionalPrinterColumns").Index(n).Child("jsonPath"), column.JSONPath,
						"must not select a value several times"))
			}
		}
	}
	if err := admittedPatterns.admit(spec); err != nil {
		return append(errs, err)
	}
	for i := range spec.Versions {
		if v := &spec.Versions[i]; v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			path := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
			if err := defaultsExceed(v.Schema.OpenAPIV3Schema, path); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// EachSchema calls f for a schema and all schemas in it.
func EachSchema(s *apiextensionsv1.JSONSchemaProps, f func(*apiextensionsv1.JSONSchemaProps)) {
	f(s)
	for _, properties := range []map[string]apiextensionsv1.JSONSchemaProps{s.Properties, s.PatternProperties,
		s.Definitions} {
		for _, inner := range properties {
			EachSchema(&inner, f)
		}
	}
	for _, all := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.OneOf, s.AnyOf} {
		for i := range all {
			EachSchema(&all[i], f)
		}
	}
	if s.Items != nil {
		for i := range s.Items.JSONSchemas {
			EachSchema(&s.Items.JSONSchemas[i], f)
		}
		if s.Items.Schema != nil {
			EachSchema(s.Items.Schema, f)
		}
	}
	for _, either := range []*apiextensionsv1.JSONSchemaPropsOrBool{s.AdditionalProperties, s.AdditionalItems} {
		if either != nil && either.Schema != nil {
			EachSchema(either.Schema, f)
		}
	}
	if s.Not != nil {
		EachSchema(s.Not, f)
	}
}

// HasBoundedResults reports whether the result of a JSONPath is not much larger than the object. A union that repeats a
// name doubles the results at each level, and so does a recursive descent within the results of another one.
func HasBoundedResults(path string) bool {
	parsed, err := jsonpath.Parse("path", "{"+path+"}")
	return err != nil || results(parsed.Root) <= maxResults // validation or the column reports an error
}

// HasRecursiveDescent reports whether a JSONPath contains a recursive descent.
func HasRecursiveDescent(path string) bool { return strings.Contains(path, "..") }

// results returns the maximum number of values that a path finds for each value of the object.
func results(list *jsonpath.ListNode) int {
	n := 1
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *jsonpath.ListNode:
			n *= results(node)
		case *jsonpath.UnionNode:
			sum := 0
			for _, one := range node.Nodes {
				sum += results(one)
			}
			n *= max(sum, 1)
		case *jsonpath.RecursiveNode:
			n *= maxResults/2 + 1 // allows a single descent
		case *jsonpath.FilterNode:
			n *= max(results(node.Left), results(node.Right))
		}
		if n = min(n, maxResults+1); n > maxResults {
			return n
		}
	}
	return n
}
