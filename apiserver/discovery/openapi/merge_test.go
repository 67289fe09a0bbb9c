package openapi_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/aggregate"
	"monopod/apiserver/discovery/openapi"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
)

// theirs is another server's document: its ObjectMeta differs from ours, its Time is the same, its Status lists a kind
// of its own.
const theirs = `{"swagger":"2.0","paths":{"/apis/wardle.example.com/v1/flunders":{"get":{"parameters":[{"$ref":"#/parameters/own"}],"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/com.example.wardle.v1.Flunder"}}}}}},
"parameters":{"own":{"in":"query","name":"own","type":"string"}},
"definitions":{
"com.example.wardle.v1.Flunder":{"type":"object","properties":{"metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},"raw":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"},"taken":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2"}}},
"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":{"type":"object","description":"another one","properties":{"t":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Time"}}},
"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2":{"type":"string"},
"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1":RAW,
"io.k8s.apimachinery.pkg.apis.meta.v1.Time":TIME}}`

// merged returns our document of OpenAPI v2 with others merged into it, and without.
func merged(t *testing.T, others ...string) (with, without *openapi.Text) {
	t.Helper()
	deployments := func() []kind.Resource {
		return slices.DeleteFunc(registry.Resources(), func(r kind.Resource) bool {
			return r.GVR != schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
		})
	}
	without, err := openapi.Composed(
		openapi.New(openapi.Config{Resources: deployments, Version: "v1.37.2", Clock: clock.RealClock{}}), "")
	if err != nil {
		t.Fatal(err)
	}
	var ours struct{ Definitions map[string]json.RawMessage }
	if err := json.Unmarshal(without.JSON, &ours); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("TIME", string(ours.Definitions["io.k8s.apimachinery.pkg.apis.meta.v1.Time"]),
		"RAW", strings.TrimSuffix(string(ours.Definitions["io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"]), "}")+
			`,"x-kubernetes-group-version-kind":[{"group":"wardle.example.com","kind":"Raw","version":"v1"}]}`)
	d := openapi.New(
		openapi.Config{Resources: deployments, Version: "v1.37.2", Clock: clock.RealClock{},
			Foreign: func() (parts []*aggregate.Part) {
				for _, text := range others {
					part, err := aggregate.Read([]byte(fill.Replace(text)), "/apis/wardle.example.com/v1/")
					if err != nil {
						t.Fatal(err)
					}
					parts = append(parts, part)
				}
				return parts
			}})
	with, err = openapi.Composed(d, "")
	if err != nil {
		t.Fatal(err)
	}
	return with, without
}

// A definition of another server is merged with ours of the same name if both are equal. Otherwise it gets a new name,
// also in references.
func TestMerge(t *testing.T) {
	t.Parallel()
	with, without := merged(t, theirs)
	var is, was struct{ Paths, Definitions, Parameters map[string]any }
	for doc, into := range map[*openapi.Text]any{with: &is, without: &was} {
		if err := json.Unmarshal(doc.JSON, into); err != nil {
			t.Fatal(err)
		}
	}
	const meta = "io.k8s.apimachinery.pkg.apis.meta.v1."
	at := func(path ...string) any {
		var v any = is.Definitions
		for _, name := range path {
			v, _ = v.(map[string]any)[name]
		}
		return v
	}
	for _, c := range []struct {
		got  any
		want string
	}{
		{at("com.example.wardle.v1.Flunder", "properties", "metadata", "$ref"), "#/definitions/" + meta + "ObjectMeta_v3"},
		{at("com.example.wardle.v1.Flunder", "properties", "taken", "$ref"), "#/definitions/" + meta + "ObjectMeta_v2"},
		{at("com.example.wardle.v1.Flunder", "properties", "raw", "$ref"),
			"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"},
		{at(meta+"ObjectMeta_v3", "description"), "another one"},
		{at(meta+"ObjectMeta_v3", "properties", "t", "$ref"), "#/definitions/" + meta + "Time"},
	} {
		if c.got != c.want {
			t.Errorf("got %v, want %s", c.got, c.want)
		}
	}
	if kinds, _ := at("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "x-kubernetes-group-version-kind").([]any); len(
		kinds) != 1 {
		t.Errorf("a shared definition has the kinds %v", kinds)
	}
	if len(is.Definitions) != len(was.Definitions)+3 || len(is.Paths) != len(was.Paths)+1 ||
		len(is.Parameters) != len(was.Parameters)+1 {
		t.Errorf("%d definitions were %d, %d paths were %d, %d parameters were %d", len(is.Definitions), len(was.Definitions),
			len(is.Paths), len(was.Paths), len(is.Parameters), len(was.Parameters))
	}
	if with.Hash == without.Hash || !reflect.DeepEqual(at(meta+"ObjectMeta"), was.Definitions[meta+"ObjectMeta"]) {
		t.Error("the hash is that of our document, or our ObjectMeta has changed")
	}
}

// Parts of another server's document that are not OpenAPI are missing only in the protobuf.
func TestMergeInvalidParts(t *testing.T) {
	t.Parallel()
	with, _ := merged(t,
		`{"paths":{"/apis/wardle.example.com/v1/bad":{"unknown":{"a":7}},`+
			`"/apis/wardle.example.com/v1/good":{"get":{"responses":{"200":{"description":"OK"}}}}}}`)
	data, err := with.Protobuf()
	if err != nil {
		t.Fatal(err)
	}
	var got openapi_v2.Document
	if err := proto.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	for _, p := range got.Paths.Path {
		paths[p.Name] = true
	}
	if paths["/apis/wardle.example.com/v1/bad"] || !paths["/apis/wardle.example.com/v1/good"] ||
		!paths["/apis/apps/v1/deployments"] {
		t.Errorf("paths %v", paths)
	}
}
