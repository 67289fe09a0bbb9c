package custom

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/registry/webhook"
)

// BenchmarkRules evaluates the rules of an object with a hundred items, each with one rule. The CPU time of an evaluation
// includes its share of the work for the object.
func BenchmarkRules(b *testing.B) {
	const items = 100
	for name, rule := range map[string]string{
		"number":  "self.a % 2 == 0 && self.a < 1000",
		"fields":  "!has(self.b) || self.a <= self.b",
		"text":    "self.s.startsWith('x') && self.s.size() < 20",
		"pattern": "self.s.matches('^x[a-z0-9]*$')",
	} {
		b.Run(name, func(b *testing.B) {
			var props apiextensionsv1.JSONSchemaProps
			schema := fmt.Sprintf(
				`{"type":"array","maxItems":%d,"items":{"type":"object","properties":{"a":{"type":"integer"},`+
					`"b":{"type":"integer"},"s":{"type":"string","maxLength":30}},"x-kubernetes-validations":[{"rule":%q}]}}`, items,
				rule)
			if err := json.Unmarshal([]byte(schema), &props); err != nil {
				b.Fatal(err)
			}
			def := schemaDefinition(&props)
			apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&def.CustomResourceDefinition)
			if errs := Validate(def, nil, ""); len(errs) > 0 {
				b.Fatal(errs)
			}
			v := NewKinds(clock.RealClock{}, webhook.Network{}).newVersion(def, &def.Spec.Versions[0])
			c, err := v.compiled()
			if err != nil {
				b.Fatal(err)
			}
			obj := v.new().(*Object)
			if _, err := obj.UnmarshalStrict(
				ofSpec("["+strings.Repeat(`{"a":4,"b":8,"s":"x1"},`, items-1)+`{"a":5,"b":4,"s":"y-"}]`), unlimited); err != nil {
				b.Fatal(err)
			}
			all, err := obj.Content()
			if err != nil {
				b.Fatal(err)
			}
			n, before := 0, processorTime()
			for b.Loop() {
				n++
				if errs := c.checkRules(nil, all, nil); len(errs) != 1 {
					b.Fatal(errs)
				}
			}
			b.ReportMetric(float64(n*items)/(processorTime()-before), "rules/cpu-s")
		})
	}
}

// processorTime returns the CPU time of the process in seconds.
func processorTime() float64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}
