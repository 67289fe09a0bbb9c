package custom

import (
	"encoding/json"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/registry/webhook"
)

// schemaSeeds are schemas of a spec, with a spec for each.
var schemaSeeds = [][2]string{
	{`{"type":"object","properties":{"a":{"type":"integer","minimum":1,"default":2}}}`, `{}`},
	{`{"type":"array","items":{"type":"string","enum":["x"]},"x-kubernetes-list-type":"set"}`, `["x"]`},
	{`{"type":"object","additionalProperties":{"type":"string","pattern":"^(a|b)+$"}}`, `{"k":"ab"}`},
	{`{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"t":{"type":"object",` +
		`"x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}`, `{"z":[null,1.0]}`},
	{`{"x-kubernetes-int-or-string":true}`, `"80%"`},
	{`{"type":"string","maxLength":9,"x-kubernetes-validations":[{"rule":"self.matches('[a-z]*') && self != ` +
		`''","message":"m"}]}`, `"x"`},
	{`{"type":"string","maxLength":9,"x-kubernetes-validations":[{"rule":"self != 'x'"}]}`, `"x"`},
	{`{"type":"integer","x-kubernetes-validations":[{"rule":"self % 2 == 0 && self > -5","messageExpression":"'n'"}]}`,
		`4`},
	{`{"type":"object","properties":{"l":{"type":"array","maxItems":5,"items":{"type":"object","required":["k"],` +
		`"properties":{"k":{"type":"string"}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"]}}}`,
		`{"l":[{"k":"a"}]}`},
	{`{"type":"object","properties":{"a":{"type":"number","exclusiveMaximum":true,"maximum":1e3}},` +
		`"oneOf":[{"required":["a"]}]}`, `{"a":0.5}`},
	{`{"type":"string","format":"date-time","nullable":true}`, `null`},
	{`{"type":"object","default":{},"properties":{"a":{"type":"array","default":[{},{"b":"y"}],` +
		`"items":{"type":"object","properties":{"b":{"type":"string","default":"x"}}}}}}`, `{}`},
}

// FuzzSchema checks that a schema with rules is rejected with errors, or compiles. Encoding and decoding then does not
// change an object.
func FuzzSchema(f *testing.F) {
	for _, seed := range schemaSeeds {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, schema, spec []byte) {
		var props apiextensionsv1.JSONSchemaProps
		if json.Unmarshal(schema, &props) != nil {
			return
		}
		def := schemaDefinition(&props)
		apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&def.CustomResourceDefinition)
		if len(Validate(def, nil, "")) > 0 {
			return
		}
		v := NewKinds(clock.RealClock{}, webhook.Network{}).newVersion(def, &def.Spec.Versions[0])
		if _, err := v.compiled(); err != nil {
			t.Fatalf("%s is valid and does not compile: %v", schema, err)
		}
		read(t, v, ofSpec(string(spec)))
	})
}

// schemaDefinition returns a definition whose spec has the schema.
func schemaDefinition(props *apiextensionsv1.JSONSchemaProps) *Definition {
	def := &Definition{}
	def.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing",
			ListKind: "ThingList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": *props, "status": {Type: "object", XPreserveUnknownFields: new(true)}}}}}}}
	def.Name = "things.example.com"
	def.Status.StoredVersions = []string{"v1"}
	return def
}

func TestSchemaSeedsAreValid(t *testing.T) {
	t.Parallel()
	for _, seed := range schemaSeeds {
		var props apiextensionsv1.JSONSchemaProps
		if err := json.Unmarshal([]byte(seed[0]), &props); err != nil {
			t.Fatal(err)
		}
		def := schemaDefinition(&props)
		apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&def.CustomResourceDefinition)
		if errs := Validate(def, nil, ""); len(errs) > 0 {
			t.Errorf("%s: %v", seed[0], errs)
		}
	}
}
