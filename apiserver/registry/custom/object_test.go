package custom

import (
	"encoding/json"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry/webhook"
)

// objectSchema uses most features of schemas.
const objectSchema = `
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

func objectVersion(tb testing.TB) *Version {
	tb.Helper()
	var schema apiextensionsv1.JSONSchemaProps
	if err := yaml.UnmarshalStrict([]byte(objectSchema), &schema); err != nil {
		tb.Fatal(err)
	}
	def := &Definition{}
	def.Spec = apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com",
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema}}}}
	return NewKinds(clock.RealClock{}, webhook.Network{}).newVersion(def, &def.Spec.Versions[0])
}

// objectSpecs contains specs; valid means that a spec matches the schema and has no unknown field.
var objectSpecs = []struct {
	spec  string
	valid bool
}{
	{`{"name":"a"}`, true},
	{` { "size" : 3 , "name" : "a" } `, true},
	{`{"name":"é"}`, true},
	{`{"name":"\"\u0026"}`, true},
	{`{"name":"a","mode":"<two>","flag":false}`, true},
	{`{"name":"a","ratio":1.50,"half":1}`, true},
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
	{`{"name":"a","size":1.0}`, true},
	{`{"name":"abcdef"}`, false},
	{`{"name":"B"}`, false},
	{`{"name":""}`, false},
	{`{}`, false},
	{`{"name":"a","maybe":null}`, true},
	{`{"name":"a","unknown":1}`, false},
	{`{"name":"a","name":"b"}`, false},
	{`{"name":"a","loose":{"a":1}}`, true},
	{`{"name":"a","either":{"a":""}}`, true},
	{`{"name":"a","template":{"apiVersion":"v1","kind":"Pod","metadata":{"x":1}}}`, false},
	{`{"name":"a","mode":"three"}`, false},
	{`{"name":"a",}`, false},
	{`{"name":"a"`, false},
	{`{"name":"a","free":{"a":01}}`, false},
	{`{"name":"a","free":{"a":-0,"b":[ ],"c":{ }}}`, true},
	{`{"name":"a","free":{"a":"\ud800","b":"\u2028"}}`, true},
	{`7`, false},
}

// read decodes and validates an object as a creation does, and reports whether it is valid. It checks that encoding and
// decoding does not change the object.
func read(t *testing.T, v *Version, data []byte) bool {
	t.Helper()
	o := v.new().(*Object)
	found, err := o.UnmarshalStrict(data, unlimited)
	if err != nil {
		return false
	}
	valid := len(v.validate(o, nil, "")) == 0
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	again := v.new().(*Object)
	if more, err := again.UnmarshalStrict(text, unlimited); err != nil || len(more) > 0 || !again.Equal(o) {
		t.Fatalf("%s is read as\n%s, which is read as\n%v (%v, %v)", data, text, again, more, err)
	}
	if is := len(v.validate(again, nil, "")) == 0; is != valid {
		t.Fatalf("%s is valid: %t, and after it was encoded: %t", data, valid, is)
	}
	return valid && len(found) == 0
}

func ofSpec(spec string) []byte {
	return fmt.Appendf(nil,
		`{"kind":"Thing","metadata":{"name":"a","labels":{"x":"y"}},"apiVersion":"example.com/v1","status":{"b":[{"d":1,`+
			`"c":2}],"a":null},"spec":%s}`, spec)
}

func TestObjectsAreReadBySchema(t *testing.T) {
	t.Parallel()
	v := objectVersion(t)
	for _, c := range objectSpecs {
		if valid := read(t, v, ofSpec(c.spec)); valid != c.valid {
			t.Errorf("%s is valid: %t, want %t", c.spec, valid, c.valid)
		}
	}
	for _, object := range []string{
		`{"metadata":{"name":"a","extra":1},"spec":{"name":"a"}}`, `{"metadata":[],"spec":{"name":"a"}}`,
		`{"kind":7,"spec":{"name":"a"}}`,
		`{"spec":{"name":"a"},"other":1}`, `{"spec":{"name":"a"}} x`, `{"kind":"A","kind":"B","spec":{"name":"a"}}`, `[]`,
		`null`, ``,
	} {
		if read(t, v, []byte(object)) {
			t.Errorf("%s is valid", object)
		}
	}
	o := v.new().(*Object)
	if found, err := o.UnmarshalStrict(ofSpec(`{"size":3,"unknown":1,"ports":[{"port":1}],"name":"a","inner":{"b":"x"}}`),
		unlimited); err != nil || len(found) != 1 || found[0].Error() != `unknown field "spec.unknown"` {
		t.Errorf("found %v, %v", found, err)
	}
	const want = `{"flag":true,"inner":{"a":1,"b":"x"},"mode":"one","name":"a","ports":[{"port":1,"protocol":"TCP"}],` +
		`"size":3}`
	if got := string(o.member("spec")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// FuzzObject checks that encoding and decoding does not change an object.
func FuzzObject(f *testing.F) {
	for _, c := range objectSpecs {
		f.Add([]byte(c.spec))
	}
	v := objectVersion(f)
	f.Fuzz(func(t *testing.T, spec []byte) {
		read(t, v, ofSpec(string(spec)))
		read(t, v, spec) // as the whole object
	})
}
