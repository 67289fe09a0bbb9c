package custom

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func specOf(expressions ...string) *apiextensionsv1.CustomResourceDefinitionSpec {
	schema := &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for i, e := range expressions {
		schema.Properties[fmt.Sprint(i)] = apiextensionsv1.JSONSchemaProps{Pattern: e}
	}
	return &apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
		{Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}}}}
}

// Patterns that take minutes to parse or to compile, or much memory, are rejected at once.
func TestCostlyPatterns(t *testing.T) {
	t.Parallel()
	for expression, refused := range map[string]bool{
		`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`: false,
		`(?i)^\p{L}[B-𞥂\pN]{1,63}$`:                                         false,
		"(?i)[" + strings.Repeat("B-𞥂", 400_000) + "]":                      true,
		"(?s)(?mi:" + strings.Repeat(`[\x{42}-\x{1e942}]`, 100_000) + ")":   true,
		strings.Repeat(`\pL`, 1_000_000):                                    true,
		"[" + strings.Repeat(`\PL`, 1_000_000) + "]":                        true,
		strings.Repeat("(a?){1000}", 300):                                   true,
		strings.Repeat("a", 1_000_000):                                      true,
	} {
		p := patterns{known: map[string]bool{}}
		began := time.Now()
		if err := p.admit(specOf(expression)); (err != nil) != refused {
			t.Errorf("%.40q: %v", expression, err)
		}
		if took := time.Since(began); took > 5*time.Second { // some of them take an hour to parse
			t.Errorf("%.40q: took %v", expression, took)
		}
	}
}

// The size of all patterns together is limited, because upstream's validator caches them. Known patterns do not count
// again.
func TestPatternsOfAllDefinitions(t *testing.T) {
	t.Parallel()
	p := patterns{known: map[string]bool{}}
	admitted := 0
	for i := range 100 {
		if p.admit(specOf(strings.Repeat("(a?){1000}", 50)+fmt.Sprint(i))) == nil {
			admitted++
		}
	}
	if admitted < 5 || admitted > 20 {
		t.Errorf("%d definitions of 100,000 instructions are admitted", admitted)
	}
	again := strings.Repeat("(a?){1000}", 50) + "0"
	if err := p.admit(specOf(again, again)); err != nil {
		t.Error(err)
	}
	if err := p.admit(specOf(strings.Repeat("(a?){1000}", 50) + "x")); err == nil ||
		!strings.Contains(err.Error(), "restart the server") {
		t.Error(err)
	}
}
