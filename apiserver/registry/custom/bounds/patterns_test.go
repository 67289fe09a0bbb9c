package bounds

import (
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// cached returns how many patterns upstream's validator keeps.
func cached() int {
	patterns, _ := upstreams.Load().(map[string]*regexp.Regexp)
	return len(patterns)
}

// Upstream's validator keeps the patterns of few schemas, and of those for some minutes; what it forgot still counts.
func TestPatternsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPatterns(clock.RealClock{})
		const size = maxCompiled / 10
		most := 0
		compare := func(n int) {
			pattern := fmt.Sprintf("^x%d[ab]{%d}$", n, size/1000)
			w := WorkOf(&apiextensionsv1.JSONSchemaProps{Pattern: pattern})
			w.patterns[pattern] = size // which a pattern of that size would take long to compile
			p.Use(w)
			schema := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}, Pattern: pattern}}
			if r := Validator(schema).Validate("c"); len(r.Errors) != 1 {
				t.Fatalf("%q matches: %v", pattern, r.Errors)
			}
			most = max(most, cached())
		}
		compare(0)
		for n := range 95 {
			compare(n)
			compare(0)
		}
		if most < 5 || most > 10 {
			t.Errorf("%d patterns were kept at once, want some, at most 10", most)
		}
		time.Sleep(keptFor)
		synctest.Wait()
		if n := cached(); n != 0 {
			t.Errorf("%d patterns are kept after %v", n, keptFor)
		}
		compare(0)
		ForgetPatterns()
		if n := cached(); n != 0 {
			t.Errorf("%d patterns are kept", n)
		}
		time.Sleep(keptFor)
	})
}

// Large schemas that take turns wait for one timer, however often they make each other forgotten.
func TestLargePatternsShareATimer(t *testing.T) {
	t.Parallel()
	c := clocktesting.NewFakeClock(time.Now())
	p := NewPatterns(c)
	for range 100 {
		p.Use(&Work{patterns: map[string]int{"large": maxCompiled}})
	}
	if n := c.Waiters(); n != 1 {
		t.Errorf("%d timers, want 1", n)
	}
}
