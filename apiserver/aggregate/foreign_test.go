package aggregate_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"monopod/apiserver/aggregate"
)

// A part has the paths with the prefix, and what these need, directly or not.
func TestRead(t *testing.T) {
	t.Parallel()
	part, err := aggregate.Read([]byte(`{"swagger":"2.0","paths":{
		"/apis/a.example.com/v1/things": {"get": {"schema": { "$ref" : "#/definitions/Thing" }}, "parameters": [{"$ref": "#/parameters/limit"}]},
		"/apis/a.example.com/v10/others": {"get": {"schema": {"$ref": "#/definitions/Other"}}}},
		"definitions": {"Thing": {"properties": {"a": {"$ref": "#/definitions/Inner"}, "b": {"$ref": "#/definitions/Missing"}}}, "Inner": {"items": {"$ref": "#/definitions/Thing"}}, "Other": {}},
		"parameters": {"limit": {"type": "integer"}, "watch": {}}}`), "/apis/a.example.com/v1/")
	if err != nil {
		t.Fatal(err)
	}
	c, err := part.Content()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []struct {
		of   map[string]json.RawMessage
		want []string
	}{{c.Paths, []string{"/apis/a.example.com/v1/things"}}, {c.Definitions, []string{"Inner", "Thing"}},
		{c.Parameters, []string{"limit"}}} {
		if got := slices.Sorted(maps.Keys(list.of)); !slices.Equal(got, list.want) {
			t.Errorf("got %v, want %v", got, list.want)
		}
	}
	if part, err := aggregate.Read([]byte(`{"paths":{"/apis/b.example.com/v1/":{}}}`),
		"/apis/a.example.com/v1/"); part != nil || err != nil {
		t.Errorf("of another group: %v, %v", part, err)
	}
	for name, document := range map[string]string{
		"not JSON":  `{"paths":`,
		"not paths": `{"paths":[]}`,
		"a list":    `[]`,
		"too large": `{"paths":{"/apis/a.example.com/v1/x":"` + strings.Repeat("x", aggregate.MaxPart) + `"}}`,
	} {
		if part, err := aggregate.Read([]byte(document), "/apis/a.example.com/v1/"); err == nil {
			t.Errorf("%s: %v", name, part)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"paths":{"/a":{"$ref":"#/definitions/X"}},"definitions":{"X":{"$ref":"#/parameters/"}}}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		part, err := aggregate.Read(document, "/")
		if part == nil || err != nil {
			return
		}
		c, err := part.Content()
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.Definitions {
			if !json.Valid(aggregate.Refs(text, func(_, name string) string { return name + "_v2" })) {
				t.Errorf("%s is not JSON with other names", text)
			}
		}
	})
}
