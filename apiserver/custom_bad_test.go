package apiserver_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// definitionOf returns a definition whose objects have a spec of this schema.
func definitionOf(spec string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",` +
		`"metadata":{"name":"bads.example.com"},"spec":{"group":"example.com","scope":"Namespaced",` +
		`"names":{"kind":"Bad","plural":"bads"},"versions":[{"name":"v1","served":true,"storage":true,` +
		`"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":` + spec + `}}}}]}}`
}

// TestBadSchemas: an invalid or unsupported schema is refused with the field.
func TestBadSchemas(t *testing.T) {
	t.Parallel()
	a := serve(t)
	const at = "properties[spec]"
	for spec, want := range map[string]string{ // the reason and the field after openAPIV3Schema
		`{"type":"text"}`:             "FieldValueNotSupported " + at + ".type",
		`{}`:                          "FieldValueRequired " + at + ".type",
		`{"type":"array"}`:            "FieldValueRequired " + at + ".items",
		`{"type":"array","items":{}}`: "FieldValueRequired " + at + ".items.type",
		`{"type":"object","properties":{"a":{}}}`:                                                         "FieldValueRequired " + at + ".properties[a].type",
		`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":{"type":"string"}}`: "FieldValueForbidden " + at + ".additionalProperties",
		`{"type":"array","items":{"type":"string"},"uniqueItems":true}`:                                   "FieldValueForbidden " + at + ".uniqueItems",
		`{"type":"string","pattern":"("}`:                                                                 "FieldValueInvalid " + at + ".pattern",
		`{"type":"string","default":3}`:                                                                   "FieldValueTypeInvalid " + at + ".default",
		`{"type":"integer","default":"x"}`:                                                                "FieldValueTypeInvalid " + at + ".default",
		`{"type":"integer","minimum":3,"default":1}`:                                                      "FieldValueInvalid " + at + ".default",
		`{"type":"string","enum":["a"],"default":"b"}`:                                                    "FieldValueNotSupported " + at + ".default",
		`{"type":"object","properties":{"a":{"type":"string"}},"default":{"b":1}}`:                        "FieldValueInvalid " + at + ".default",
		`{"type":"string","not":{"type":"string"}}`:                                                       "FieldValueForbidden " + at + ".not.type",
		`{"type":"string","not":{"default":"a"}}`:                                                         "FieldValueForbidden " + at + ".not.default",
		`{"type":"string","allOf":[{"default":"a"}]}`:                                                     "FieldValueForbidden " + at + ".allOf[0].default",
		`{"type":"string","anyOf":[{"description":"a"}]}`:                                                 "FieldValueForbidden " + at + ".anyOf[0].description",
		`{"type":"string","oneOf":[{"nullable":true}]}`:                                                   "FieldValueForbidden " + at + ".oneOf[0].nullable",
		`{"type":"object","x-kubernetes-preserve-unknown-fields":false}`:                                  "FieldValueInvalid " + at + ".x-kubernetes-preserve-unknown-fields",
		`{"type":"object","x-kubernetes-embedded-resource":true}`:                                         "FieldValueRequired " + at + ".properties",
		`{"type":"string","x-kubernetes-embedded-resource":true}`:                                         "FieldValueInvalid " + at + ".type",
		`{"type":"array","items":{"type":"object"},"x-kubernetes-list-type":"bag"}`:                       "FieldValueNotSupported " + at + ".x-kubernetes-list-type",
		`{"type":"array","items":{"type":"object"},"x-kubernetes-list-type":"map"}`:                       "FieldValueRequired " + at + ".x-kubernetes-list-map-keys",
		`{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}},"x-kubernetes-list-type":"map",` +
			`"x-kubernetes-list-map-keys":["b"]}`: "FieldValueInvalid " + at + ".x-kubernetes-list-map-keys",
		`{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}},"x-kubernetes-list-type":"map",` +
			`"x-kubernetes-list-map-keys":["a"]}`: "FieldValueRequired " + at + ".items.properties[a].default",
		`{"type":"array","items":{"type":"string"},"x-kubernetes-list-map-keys":["a"]}`:                                "FieldValueRequired " + at + ".x-kubernetes-list-type",
		`{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"]}`: "FieldValueInvalid " + at + ".items.type",
		`{"type":"array","items":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},` +
			`"x-kubernetes-list-type":"set"}`: "FieldValueInvalid " + at + ".items.x-kubernetes-list-type",
		`{"type":"array","items":{"type":"object"},"x-kubernetes-list-type":"set"}`:                                            "FieldValueInvalid " + at + ".items.x-kubernetes-map-type",
		`{"type":"string","x-kubernetes-list-type":"set"}`:                                                                     "FieldValueInvalid " + at + ".type",
		`{"type":"object","x-kubernetes-map-type":"loose"}`:                                                                    "FieldValueNotSupported " + at + ".x-kubernetes-map-type",
		`{"type":"string","x-kubernetes-map-type":"atomic"}`:                                                                   "FieldValueInvalid " + at + ".type",
		`{"type":"string","$ref":"#/x"}`:                                                                                       "FieldValueForbidden " + at + ".$ref",
		`{"type":"string","x-kubernetes-validations":[{"rule":""}]}`:                                                           "FieldValueRequired " + at + ".x-kubernetes-validations[0].rule",
		`{"type":"string","x-kubernetes-validations":[{"rule":"self +"}]}`:                                                     "FieldValueInvalid " + at + ".x-kubernetes-validations[0].rule",
		`{"type":"string","x-kubernetes-validations":[{"rule":"self"}]}`:                                                       "FieldValueInvalid " + at + ".x-kubernetes-validations[0].rule",
		`{"type":"string","x-kubernetes-validations":[{"rule":"other == 1"}]}`:                                                 "FieldValueInvalid " + at + ".x-kubernetes-validations[0].rule",
		`{"type":"string","x-kubernetes-validations":[{"rule":"self.size() > 1","reason":"Nope"}]}`:                            "FieldValueNotSupported " + at + ".x-kubernetes-validations[0].reason",
		`{"type":"string","x-kubernetes-validations":[{"rule":"self.size() > 1","message":"a\nb"}]}`:                           "FieldValueInvalid " + at + ".x-kubernetes-validations[0].message",
		`{"type":"string","x-kubernetes-validations":[{"rule":"self.size() > 1","messageExpression":"1"}]}`:                    "FieldValueInvalid " + at + ".x-kubernetes-validations[0].messageExpression",
		`{"type":"object","properties":{"a":{"type":"string"}},"x-kubernetes-validations":[{"rule":"true","fieldPath":".b"}]}`: "FieldValueInvalid " + at + ".x-kubernetes-validations[0].fieldPath",
		`{"type":"array","items":{"type":"string"},"x-kubernetes-validations":[{"rule":"self.all(a, self.all(b, ` +
			`self.all(c, a == b || b == c)))"}]}`: "FieldValueForbidden " + at + ".x-kubernetes-validations[0].rule",
		`{"type":"array","items":{"type":"string","x-kubernetes-validations":[{"rule":"self == oldSelf"}]}}`: "FieldValueInvalid " + at + ".items.x-kubernetes-validations[0].rule",
	} {
		code, out := a.read("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definitionOf(spec))
		causes := causesOf(out)
		reason, field, _ := strings.Cut(want, " ")
		fits := func(cause string) bool {
			return strings.HasPrefix(cause, reason+" spec.") && strings.HasSuffix(cause, "openAPIV3Schema."+field)
		}
		message, _ := out["message"].(string)
		if code != http.StatusUnprocessableEntity || !slices.ContainsFunc(causes, fits) || !strings.HasPrefix(message,
			`CustomResourceDefinition.apiextensions.k8s.io "bads.example.com" is invalid: `) {
			t.Errorf("%s: %d, want %s\n%v\n%.400s", spec, code, want, causes, message)
		}
	}
}
