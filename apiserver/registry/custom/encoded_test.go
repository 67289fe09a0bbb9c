package custom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry/webhook/call"
)

// encodedSchema has each part of a schema that objects are checked against while they are encoded, and some that are not.
const encodedSchema = `
type: object
required: [spec]
properties:
  apiVersion: {type: string}
  kind: {type: string}
  metadata: {type: object}
  status: {type: object, x-kubernetes-preserve-unknown-fields: true}
  spec:
    type: object
    required: [name]
    minProperties: 1
    maxProperties: 20
    properties:
      name: {type: string, minLength: 1, maxLength: 5, pattern: '^[a-zé"&]+$'}
      when: {type: string, format: date-time}
      data: {type: string, format: byte}
      size: {type: integer, minimum: 1, maximum: 9, exclusiveMaximum: true}
      small: {type: integer, format: int32}
      half: {type: number, minimum: 0.5}
      ratio: {type: number, minimum: 0, exclusiveMinimum: true}
      flag: {type: boolean, default: true}
      mode: {type: string, enum: [one, "<two>"], default: one}
      port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}], pattern: '^[a-z0-9]+$'}
      maybe: {type: string, nullable: true}
      set: {type: array, x-kubernetes-list-type: set, maxItems: 3, items: {type: string}}
      ports:
        type: array
        minItems: 1
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [port, protocol]
        items:
          type: object
          required: [port]
          properties: {port: {type: integer}, protocol: {type: string, default: TCP}, name: {type: string}}
      labels: {type: object, additionalProperties: {type: string}, maxProperties: 2}
      free: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {count: {type: integer, default: 5}}}
      loose: {type: object, additionalProperties: true}
      inner: {type: object, default: {}, properties: {a: {type: integer, default: 1}, b: {type: string, default: "<"}}}
      either: {type: object, properties: {a: {type: string}, b: {type: string}}, oneOf: [{required: [a]}, {required: [b]}]}
      template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
`

func encodedVersion(tb testing.TB) *Version {
	tb.Helper()
	var schema apiextensionsv1.JSONSchemaProps
	if err := yaml.UnmarshalStrict([]byte(encodedSchema), &schema); err != nil {
		tb.Fatal(err)
	}
	def := &Definition{}
	def.Spec = apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
		{Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema}}}}
	return NewKinds(clock.RealClock{}, call.Network{}).newVersion(def, &def.Spec.Versions[0])
}

// encodedSpecs are specs, and whether they are read without decoding.
var encodedSpecs = []struct {
	spec    string
	without bool
}{
	{`{"name":"a"}`, true},
	{` { "size" : 3 , "name" : "a" } `, true},
	{`{"name":"é"}`, true},
	{`{"name":"\"\u0026"}`, true},
	{`{"name":"a","mode":"<two>","flag":false}`, true},
	{`{"name":"a","ratio":1.50,"half":1}`, false},
	{`{"name":"a","ratio":1.50}`, true},
	{`{"name":"a","ratio":1e2}`, true},
	{`{"name":"a","port":80}`, true},
	{`{"name":"a","port":"http"}`, true},
	{`{"name":"a","port":true}`, false},
	{`{"name":"a","set":["x","y"]}`, true},
	{`{"name":"a","set":["x","x"]}`, false},
	{`{"name":"a","set":["1","2","3","4"]}`, false},
	{`{"name":"a","ports":[{"port":1},{"protocol":"UDP","port":1,"name":"x"}]}`, true},
	{`{"name":"a","ports":[{"port":1},{"protocol":"TCP","port":1}]}`, false},
	{`{"name":"a","ports":[]}`, false},
	{`{"name":"a","ports":[{"name":"x"}]}`, false},
	{`{"name":"a","labels":{"b":"1","a":"2"}}`, true},
	{`{"name":"a","labels":{"b":"1","a":"2","c":"3"}}`, false},
	{`{"name":"a","free":{"z":null,"a":[1.0,{"c":"<>","b":12345678901234567890}]}}`, true},
	{`{"name":"a","free":{"count":"x"}}`, false},
	{`{"name":"a","inner":{"b":"x"}}`, true},
	{`{"name":"a","when":"2026-01-02T03:04:05Z"}`, true},
	{`{"name":"a","when":"today"}`, false},
	{`{"name":"a","data":"YWI="}`, true},
	{`{"name":"a","small":3000000000}`, false},
	{`{"name":"a","size":9}`, false},
	{`{"name":"a","size":0}`, false},
	{`{"name":"a","size":1.0}`, false},
	{`{"name":"abcdef"}`, false},
	{`{"name":"B"}`, false},
	{`{"name":""}`, false},
	{`{}`, false},
	{`{"name":"a","maybe":null}`, false},
	{`{"name":"a","unknown":1}`, false},
	{`{"name":"a","name":"b"}`, false},
	{`{"name":"a","loose":{"a":1}}`, false},
	{`{"name":"a","either":{"a":""}}`, false},
	{`{"name":"a","template":{"apiVersion":"v1","kind":"Pod","metadata":{"x":1}}}`, false},
	{`{"name":"a","mode":"three"}`, false},
	{`{"name":"a",}`, false},
	{`{"name":"a"`, false},
	{`{"name":"a","free":{"a":01}}`, false},
	{`{"name":"a","free":{"a":-0,"b":[ ],"c":{ }}}`, true},
	{`{"name":"a","free":{"a":"\ud800","b":"\u2028"}}`, true},
	{`7`, false},
}

// readBoth reads an object as it is read, and as it would be decoded; it fails if the first one differs, and returns whether that one
// was not decoded.
func readBoth(t *testing.T, v *Version, data []byte) bool {
	t.Helper()
	quick, slow := v.new().(*Object), v.new().(*Object)
	found, err := quick.UnmarshalStrict(data, free)
	sound := quick.sound != nil
	if !sound {
		return false
	}
	c, compileErr := v.compiled()
	if compileErr != nil {
		t.Fatal(compileErr)
	}
	kept := c.encoded
	c.encoded = nil
	slowFound, slowErr := slow.UnmarshalStrict(data, free)
	errs := v.validate(slow, nil, "")
	c.encoded = kept
	if err != nil || len(found) > 0 || slowErr != nil || len(slowFound) > 0 {
		t.Fatalf("%s is read with %v %v, and decoded with %v %v", data, err, found, slowErr, slowFound)
	}
	if !quick.Same(slow) || quick.TypeMeta != slow.TypeMeta || !equality.Semantic.DeepEqual(quick.ObjectMeta, slow.ObjectMeta) {
		t.Fatalf("%s is read as\n%s %+v, and decoded as\n%s %+v", data, quick.members, quick.ObjectMeta, slow.members, slow.ObjectMeta)
	}
	if !slow.matches(c) {
		t.Errorf("%s is read as valid, but not once it is decoded", data)
	}
	if is := v.validate(quick, nil, ""); fmt.Sprint(is) != fmt.Sprint(errs) || quick.valid != (len(errs) == 0) || quick.sound != nil {
		t.Fatalf("%s is read, and has the errors %v; decoded it has %v", data, is, errs) // only rules have any
	}
	return true
}

func ofSpec(spec string) []byte {
	return fmt.Appendf(nil, `{"kind":"Thing","metadata":{"name":"a","labels":{"x":"y"}},"apiVersion":"example.com/v1","status":{"b":[{"d":1,"c":2}],"a":null},"spec":%s}`, spec)
}

func TestEncodedObjectsAreReadAsDecodedOnes(t *testing.T) {
	t.Parallel()
	v := encodedVersion(t)
	for _, c := range encodedSpecs { // a schema without rules
		if without := readBoth(t, v, ofSpec(c.spec)); without != c.without {
			t.Errorf("%s is read without decoding: %t, want %t", c.spec, without, c.without)
		}
	}
	for _, object := range []string{
		`{"metadata":{"name":"a","extra":1},"spec":{"name":"a"}}`, `{"metadata":[],"spec":{"name":"a"}}`, `{"kind":7,"spec":{"name":"a"}}`,
		`{"spec":{"name":"a"},"other":1}`, `{"spec":{"name":"a"}} x`, `{"kind":"A","kind":"B","spec":{"name":"a"}}`, `[]`, `null`, ``,
	} {
		if readBoth(t, v, []byte(object)) {
			t.Errorf("%s is read without decoding", object)
		}
	}
}

// FuzzEncoded: what is read without decoding is what decoding, defaulting and pruning make of it, and is valid.
func FuzzEncoded(f *testing.F) {
	for _, c := range encodedSpecs {
		f.Add([]byte(c.spec))
	}
	v := encodedVersion(f)
	f.Fuzz(func(t *testing.T, spec []byte) {
		data := ofSpec(string(spec))
		if readBoth(t, v, data) && !json.Valid(data) {
			t.Errorf("%s is not JSON", data)
		}
		readBoth(t, v, bytes.TrimSpace(spec)) // as the whole object
	})
}
