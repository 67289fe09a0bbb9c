package crd_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"monopod/apiserver/kit/crd"
)

// awkward has definitions whose schemas, names or annotations contain text that looks like the schema of a version.
var awkward = map[string]string{
	"one": `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1",` +
		`"metadata":{"name":"a.example.com","resourceVersion":"7"},"spec":{"group":"example.com","names":{"plural":"as",` +
		`"kind":"A"},"scope":"Cluster","versions":[` +
		`{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"description":"says \"a\\\" {{ and ` +
		`\\","type":"object","properties":{"spec":{"type":"object","default":{"a":"}"}}}}},` +
		`"selectableFields":[{"jsonPath":".spec.a"}]}]},"status":{"conditions":null,"acceptedNames":{"plural":"",` +
		`"kind":""},"storedVersions":null}}`,
	"a version without a schema": `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1",` +
		`"metadata":{"name":"a.example.com"},"spec":{"group":"example.com","names":{"plural":"as","kind":"A"},` +
		`"scope":"Cluster","versions":[` +
		`{"name":"v3","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},{"name":"v2",` +
		`"served":true,"storage":false},{"name":"v1","served":true,"storage":false,"schema":{"openAPIV3Schema":{}}},` +
		`{"name":"v0","served":true,"storage":false,"schema":{}}]},"status":{"conditions":null,` +
		`"acceptedNames":{"plural":"","kind":""},"storedVersions":null}}`,
	"schema of definitions": `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1",` +
		`"metadata":{"name":"a.example.com","annotations":{"last":"{\"openAPIV3Schema\":{\"type\":\"object\"}}"},` +
		`"managedFields":[{"manager":"m","fieldsV1":{"f:schema":{"f:openAPIV3Schema":{}}}}]},` +
		`"spec":{"group":"example.com","names":{"plural":"as","kind":"A"},"scope":"Cluster","versions":[` +
		`{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",` +
		`"properties":{"openAPIV3Schema":{"type":"object","properties":{"openAPIV3Schema":{"id":"monopod/0"}}}}}}}]},` +
		`"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}}`,
	"none": `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1",` +
		`"metadata":{"name":"a.example.com"},"spec":{"group":"example.com","names":{"plural":"as","kind":"A"},` +
		`"scope":"Cluster","versions":null},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},` +
		`"storedVersions":null}}`,
}

// A definition that the store loads, and one that a client sends and Pack packs, have the same JSON and the same fields
// as upstream's type.
func TestPackedIsTheSame(t *testing.T) {
	t.Parallel()
	for name, text := range awkward {
		var upstream apiextensionsv1.CustomResourceDefinition
		if err := json.Unmarshal([]byte(text), &upstream); err != nil {
			t.Fatal(name, err)
		}
		loaded, sent := &crd.Definition{}, &crd.Definition{}
		if err := loaded.Load([]byte(text)); err != nil {
			t.Fatal(name, err)
		}
		if found, err := sent.UnmarshalStrict([]byte(text), nil); err != nil || len(found) > 0 {
			t.Fatal(name, found, err)
		}
		for range 2 { // packing again changes nothing
			if err := sent.Pack(); err != nil {
				t.Fatal(name, err)
			}
		}
		for how, def := range map[string]*crd.Definition{"loaded": loaded, "packed": sent, "copied": sent.DeepCopy()} {
			if data, err := json.Marshal(def); err != nil || string(data) != text {
				t.Errorf("%s, %s: %v\n got %s\nwant %s", name, how, err, data, text)
			}
			if full, err := def.Full(); err != nil || !equality.Semantic.DeepEqual(full, &upstream) {
				t.Errorf("%s, %s: %v, got %v", name, how, err, full)
			}
			for i := range upstream.Spec.Versions {
				got, err := def.SchemaOf(&def.Spec.Versions[i])
				var want *apiextensionsv1.JSONSchemaProps
				if s := upstream.Spec.Versions[i].Schema; s != nil {
					want = s.OpenAPIV3Schema
				}
				if err != nil || !equality.Semantic.DeepEqual(got, want) {
					t.Errorf("%s, %s: schema %d: %v, %v", name, how, i, got, err)
				}
			}
		}
	}
}

// JSON that this package did not write, with spaces, is decoded as a whole.
func TestLoadForeign(t *testing.T) {
	t.Parallel()
	for name, text := range awkward {
		var spaced bytes.Buffer
		if err := json.Indent(&spaced, []byte(text), "", " "); err != nil {
			t.Fatal(err)
		}
		def := &crd.Definition{}
		if err := def.Load(spaced.Bytes()); err != nil {
			t.Fatal(name, err)
		}
		if data, err := json.Marshal(def); err != nil || string(data) != text {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, data, text)
		}
	}
	for _, text := range []string{``, `{`, `{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"a":"`,
		`{"spec":{"versions":[{"schema":{"openAPIV3Schema":{`, `[]`} {
		if err := new(crd.Definition).Load([]byte(text)); err == nil {
			t.Errorf("%s was loaded", text)
		}
	}
}

// Versions of a packed definition may be moved, removed, and get other schemas.
func TestChangePacked(t *testing.T) {
	t.Parallel()
	def := &crd.Definition{}
	if err := def.Load([]byte(awkward["a version without a schema"])); err != nil {
		t.Fatal(err)
	}
	before := def.DeepCopy()
	v := def.DeepCopy()
	if !v.SharesSchemas(def) {
		t.Error("a copy does not share the schemas")
	}
	v.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{v.Spec.Versions[2], v.Spec.Versions[1],
		v.Spec.Versions[0]}
	v.Spec.Versions[1].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Description: "new"}}
	const want = `[{"name":"v1","served":true,"storage":false,"schema":{"openAPIV3Schema":{}}},{"name":"v2",` +
		`"served":true,"storage":false,"schema":{"openAPIV3Schema":{"description":"new"}}},{"name":"v3","served":true,` +
		`"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]`
	for range 2 { // also after it is packed again
		if data, err := json.Marshal(v); err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%v %s", err, data)
		}
		if err := v.Pack(); err != nil {
			t.Fatal(err)
		}
	}
	was, err := json.Marshal(before)
	if is, err2 := json.Marshal(def); err != nil || err2 != nil || !bytes.Equal(is, was) {
		t.Errorf("the definition that was copied changed: %s", is)
	}
}

func FuzzLoad(f *testing.F) {
	for _, text := range awkward {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var upstream apiextensionsv1.CustomResourceDefinition
		if json.Unmarshal(data, &upstream) != nil {
			return
		}
		def := &crd.Definition{}
		if err := def.Load(data); err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(def); err != nil {
			t.Fatal(err)
		}
	})
}

// TestManyVersions: the allocations of encoding a definition are linear in the number of its versions.
func TestManyVersions(t *testing.T) {
	encoding := func(versions int) float64 {
		def := &crd.Definition{}
		for range versions {
			def.Spec.Versions = append(def.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}})
		}
		if err := def.Pack(); err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(1, func() {
			if _, err := def.MarshalJSON(); err != nil {
				t.Error(err)
			}
		})
	}
	if few, many := encoding(100), encoding(1000); many > 15*few {
		t.Errorf("%v allocations for 100 versions, and %v for 1000", few, many)
	}
}
