package custom

import (
	"fmt"
	"regexp/syntax"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/expressions"
)

// admittedPatterns are the patterns that upstream's validator may have compiled: it caches them until the process ends.
var admittedPatterns = patterns{known: map[string]bool{}}

// patterns contains the patterns of all admitted definitions.
type patterns struct {
	mu    sync.Mutex // guards the fields below
	known map[string]bool
	size  int // in instructions
}

// admit adds the patterns of a definition. It returns an error if their size, or that of all patterns, exceeds the
// limit.
func (p *patterns) admit(spec *apiextensionsv1.CustomResourceDefinitionSpec) *field.Error {
	path := field.NewPath("spec", "versions")
	sizes, size := map[string]int{}, 0
	for i := range spec.Versions {
		if v := &spec.Versions[i]; v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			EachSchema(v.Schema.OpenAPIV3Schema, func(s *apiextensionsv1.JSONSchemaProps) {
				if s.Pattern == "" || size > maxPatterns {
					return
				}
				if sizes[s.Pattern] == 0 {
					sizes[s.Pattern] = patternOverhead + expressions.ParseCost(s.Pattern)
					if size+sizes[s.Pattern] <= maxPatterns {
						sizes[s.Pattern] += sizeOfPattern(s.Pattern)
					}
				}
				size += sizes[s.Pattern]
			})
		}
	}
	if size > maxPatterns {
		return field.Forbidden(path,
			fmt.Sprintf("the compiled patterns of all versions exceed %d instructions", maxPatterns))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	more := 0
	for text, n := range sizes {
		if !p.known[text] {
			more += n
		}
	}
	if p.size+more > maxAllPatterns {
		return field.Forbidden(path,
			fmt.Sprintf("the compiled patterns of all definitions since the start of the server exceed %d instructions; "+
				"restart the server to add more", maxAllPatterns))
	}
	for text := range sizes {
		p.known[text] = true
	}
	p.size += more
	return nil
}

// sizeOfPattern returns the approximate number of instructions of a regular expression.
func sizeOfPattern(expression string) int {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return 0 // validation rejects it
	}
	return expressions.PatternSize(parsed)
}
