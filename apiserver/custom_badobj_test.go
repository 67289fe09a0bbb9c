package apiserver_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// badObjects is the schema of TestBadObjects.
const badObjects = `{"type":"object","required":["name"],
"x-kubernetes-validations":[{"rule":"!has(self.low) || !has(self.high) || self.low <= self.high","message":"low must not exceed high"},
	{"rule":"!has(self.low) || self.low != 7","reason":"FieldValueForbidden","fieldPath":".low"}],
"properties":{
	"name":{"type":"string","minLength":2,"maxLength":5,"pattern":"^[a-z]+$"},
	"when":{"type":"string","format":"date-time"},"day":{"type":"string","format":"date"},"data":{"type":"string","format":"byte"},
	"address":{"type":"string","format":"ipv4"},"uid":{"type":"string","format":"uuid"},"range":{"type":"string","format":"cidr"},
	"small":{"type":"integer","minimum":1,"maximum":9},"below":{"type":"integer","maximum":5,"exclusiveMaximum":true},"above":{"type":"integer","minimum":5,"exclusiveMinimum":true},
	"half":{"type":"number","multipleOf":0.5},"wide":{"type":"integer","format":"int32"},"low":{"type":"integer"},"high":{"type":"integer"},
	"flag":{"type":"boolean"},"mode":{"type":"string","enum":["one","two"]},"port":{"x-kubernetes-int-or-string":true},
	"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
	"keyed":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"n":{"type":"integer"}}}},
	"few":{"type":"array","minItems":1,"maxItems":2,"items":{"type":"integer"}},
	"labels":{"type":"object","minProperties":1,"maxProperties":2,"additionalProperties":{"type":"string","maxLength":3}},
	"either":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"oneOf":[{"required":["a"]},{"required":["b"]}]},
	"any":{"type":"integer","anyOf":[{"minimum":10},{"maximum":-10}]},"all":{"type":"integer","allOf":[{"minimum":3},{"maximum":5}]},"not":{"type":"string","not":{"enum":["no"]}},
	"template":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},
	"rules":{"type":"array","maxItems":9,"items":{"type":"object","properties":{"a":{"type":"integer","x-kubernetes-validations":[{"rule":"self % 2 == 0","message":"odd"}]}}}}
}}`

// TestBadObjects: a change of a good object is refused with upstream's code, reason and field, which is <nil> where
// upstream's validator returns an error without one.
func TestBadObjects(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.define(definitionOf(badObjects))
	const at = "/apis/example.com/v1/namespaces/default/bads"
	object := func(spec string) string {
		return `{"apiVersion":"example.com/v1","kind":"Bad","metadata":{"name":"a"},"spec":` + spec + `}`
	}
	for _, c := range []struct{ spec, want string }{
		{`{}`, "FieldValueRequired spec.name"},
		{`[]`, "FieldValueTypeInvalid spec"},
		{`"x"`, "FieldValueTypeInvalid spec"},
		{`{"name":"a"}`, "FieldValueInvalid spec.name"},
		{`{"name":"abcdef"}`, "FieldValueTooLong spec.name"},
		{`{"name":"AB"}`, "FieldValueInvalid spec.name"},
		{`{"name":7}`, "FieldValueTypeInvalid spec.name"},
		{`{"name":["ab"]}`, "FieldValueTypeInvalid spec.name"},
		{`{"name":"ab","when":"today"}`, "FieldValueTypeInvalid spec.when"},
		{`{"name":"ab","day":"2026-13-01"}`, "FieldValueTypeInvalid spec.day"},
		{`{"name":"ab","data":"*"}`, "FieldValueTypeInvalid spec.data"},
		{`{"name":"ab","address":"1.2.3"}`, "FieldValueTypeInvalid spec.address"},
		{`{"name":"ab","uid":"x"}`, "FieldValueTypeInvalid spec.uid"},
		{`{"name":"ab","range":"10.0.0.0"}`, "FieldValueTypeInvalid spec.range"},
		{`{"name":"ab","small":0}`, "FieldValueInvalid spec.small"},
		{`{"name":"ab","small":10}`, "FieldValueInvalid spec.small"},
		{`{"name":"ab","small":1.5}`, "FieldValueTypeInvalid spec.small"},
		{`{"name":"ab","small":"5"}`, "FieldValueTypeInvalid spec.small"},
		{`{"name":"ab","below":5}`, "FieldValueInvalid spec.below"},
		{`{"name":"ab","above":5}`, "FieldValueInvalid spec.above"},
		{`{"name":"ab","half":0.7}`, "FieldValueInvalid spec.half"},
		{`{"name":"ab","half":true}`, "FieldValueTypeInvalid spec.half"},
		{`{"name":"ab","wide":3000000000}`, "FieldValueInvalid <nil>"},
		{`{"name":"ab","low":3,"high":2}`, "FieldValueInvalid spec"},
		{`{"name":"ab","low":7}`, "FieldValueForbidden spec.low"},
		{`{"name":"ab","flag":"true"}`, "FieldValueTypeInvalid spec.flag"},
		{`{"name":"ab","flag":1}`, "FieldValueTypeInvalid spec.flag"},
		{`{"name":"ab","mode":"three"}`, "FieldValueNotSupported spec.mode"},
		{`{"name":"ab","mode":""}`, "FieldValueNotSupported spec.mode"},
		{`{"name":"ab","port":true}`, "FieldValueTypeInvalid spec.port"},
		{`{"name":"ab","port":1.5}`, "FieldValueTypeInvalid spec.port"},
		{`{"name":"ab","set":["x","y","x"]}`, "FieldValueDuplicate spec.set[2]"},
		{`{"name":"ab","set":[1]}`, "FieldValueTypeInvalid spec.set[0]"},
		{`{"name":"ab","set":{"x":1}}`, "FieldValueTypeInvalid spec.set"},
		{`{"name":"ab","keyed":[{"k":"x"},{"k":"x","n":2}]}`, "FieldValueDuplicate spec.keyed[1]"},
		{`{"name":"ab","keyed":[{"n":1}]}`, "FieldValueRequired spec.keyed[0].k"},
		{`{"name":"ab","keyed":["x"]}`, "FieldValueTypeInvalid spec.keyed[0]"},
		{`{"name":"ab","few":[]}`, "FieldValueInvalid spec.few"},
		{`{"name":"ab","few":[1,2,3]}`, "FieldValueTooMany spec.few"},
		{`{"name":"ab","few":[1,"2"]}`, "FieldValueTypeInvalid spec.few[1]"},
		{`{"name":"ab","labels":{}}`, "FieldValueInvalid spec.labels"},
		{`{"name":"ab","labels":{"a":"1","b":"2","c":"3"}}`, "FieldValueTooMany spec.labels"},
		{`{"name":"ab","labels":{"a":"1234"}}`, "FieldValueTooLong spec.labels.a"},
		{`{"name":"ab","labels":{"a":null}}`, "FieldValueInvalid spec.labels"},
		{`{"name":"ab","either":{}}`, "FieldValueRequired spec.either.a"},
		{`{"name":"ab","either":{"a":"","b":""}}`, "FieldValueInvalid <nil>"},
		{`{"name":"ab","any":0}`, "FieldValueInvalid spec.any"},
		{`{"name":"ab","all":2}`, "FieldValueInvalid spec.all"},
		{`{"name":"ab","all":6}`, "FieldValueInvalid spec.all"},
		{`{"name":"ab","not":"no"}`, "FieldValueInvalid <nil>"},
		{`{"name":"ab","template":{}}`, "FieldValueRequired spec.template.apiVersion"},
		{`{"name":"ab","template":{"apiVersion":"v1"}}`, "FieldValueRequired spec.template.kind"},
		{`{"name":"ab","template":{"apiVersion":"a/b/c","kind":"X"}}`, "FieldValueInvalid spec.template.apiVersion"},
		{`{"name":"ab","template":{"apiVersion":"v1","kind":"X_"}}`, "FieldValueInvalid spec.template.kind"},
		{`{"name":"ab","template":{"apiVersion":"v1","kind":"X","metadata":{"name":"a/b"}}}`,
			"FieldValueInvalid spec.template.metadata.name"},
		{`{"name":"ab","rules":[{"a":2},{"a":3}]}`, "FieldValueInvalid spec.rules[1].a"},
	} {
		code, out := a.read("POST", at, object(c.spec))
		if causes := causesOf(out); code != http.StatusUnprocessableEntity || !slices.Contains(causes, c.want) {
			t.Errorf("%s: %d, want %s, got %v\n%.300v", c.spec, code, c.want, causes, out["message"])
		}
	}
	good := object(
		`{"name":"ab","small":3,"port":"http","set":["x"],"template":{"apiVersion":"v1","kind":"X","metadata":{"name":"a"}}}`)
	for old, changed := range map[string]string{ // bodies that are not an object of the kind
		`"kind":"Bad"`: `"kind":"Worse"`, `"example.com/v1"`: `"example.com/v2"`,
		`"name":"a"}`: `"name":"a","namespace":"other"}`, `"spec"`: `spec`,
		`"metadata":{`: `"metadata":[{`, `"small":3`: `"small":03`, `{"apiVersion"`: `[{"apiVersion"`,
		`"name":"a"},`: `"name":7},`,
	} {
		if code, out := a.read("POST", at, strings.Replace(good, old, changed, 1)); code != http.StatusBadRequest ||
			out["reason"] != "BadRequest" {
			t.Errorf("%s: %d %v", changed, code, out)
		}
	}
	for query, body := range map[string]string{
		"?fieldValidation=Strict": strings.Replace(good, `"small":3`, `"small":3,"unknown":1`, 1),
		"?fieldValidation=Odd":    good, "?dryRun=Some": good,
	} {
		if code, out := a.read("POST", at+query, body); code/100 != 4 || code == http.StatusNotFound {
			t.Errorf("%s: %d %v", query, code, out)
		}
	}
	if code, out := a.read("POST", at, good); code != http.StatusCreated {
		t.Errorf("the good object: %d %v", code, out)
	}
}
