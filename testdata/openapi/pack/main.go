//go:build generated

// Command pack writes the generated definitions, in the form in which an API server publishes them, to one compressed
// file. See apiserver/registry/definitions for its format.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"monopod/testdata/openapi/generated"
)

// definition is a line of the file: a schema in OpenAPI v3 and v2.
type definition struct {
	Name  string                    `json:"name"`
	Kinds []metav1.GroupVersionKind `json:"kinds,omitempty"`
	Refs  []string                  `json:"refs,omitempty"` // the definitions to which it refers
	V3    *spec.Schema              `json:"v3"`
	V2    *spec.Schema              `json:"v2"`
}

func main() {
	out := flag.String("o", "", "the file to write")
	flag.Parse()
	data, err := pack()
	if err == nil {
		err = os.WriteFile(*out, data, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// pack returns the content of the file: a line with the versions of the modules, then a line for each definition.
func pack() ([]byte, error) {
	lines, err := definitions()
	if err != nil {
		return nil, err
	}
	var plain strings.Builder
	encode := json.NewEncoder(&plain)
	encode.SetEscapeHTML(false)
	if err := encode.Encode(map[string]any{"modules": modules()}); err != nil {
		return nil, err
	}
	for _, line := range lines {
		if err := encode.Encode(line); err != nil {
			return nil, err
		}
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(8<<20))
	if err != nil {
		return nil, err
	}
	return w.EncodeAll([]byte(plain.String()), nil), nil
}

// definitions returns the definitions of every kind and those to which they refer, sorted by name.
func definitions() ([]definition, error) {
	all := generated.GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef("#/" + name) })
	names := reachable(all)
	kinds := kindsByName()
	extend := func(name string) (string, spec.Extensions) { return name, extensions(kinds[name]) }

	v3, err := builder3.BuildOpenAPIDefinitionsForResources(&common.OpenAPIV3Config{
		GetDefinitions: generated.GetOpenAPIDefinitions, GetDefinitionName: extend, Info: &spec.Info{}}, names...)
	if err != nil {
		return nil, err
	}
	v2, err := builder.BuildOpenAPIDefinitionsForResources(&common.Config{
		GetDefinitions: generated.GetOpenAPIDefinitions, GetDefinitionName: extend, Info: &spec.Info{}}, names...)
	if err != nil {
		return nil, err
	}
	pruned := handler.PruneDefaults(v2.Definitions)
	var lines []definition
	for _, name := range names {
		s2, s3 := pruned[name], v3[name]
		lines = append(lines, definition{Name: name, Kinds: kinds[name], Refs: all[name].Dependencies, V3: s3, V2: &s2})
	}
	return lines, nil
}

// reachable returns the sorted names of all definitions. It omits alpha versions to which no other definition refers.
func reachable(all map[string]common.OpenAPIDefinition) []string {
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		for _, dependency := range all[name].Dependencies {
			visit(dependency)
		}
	}
	for name := range all {
		if !strings.Contains(name, "alpha") {
			visit(name)
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// extensions returns the extension that lists the kinds of a definition.
func extensions(kinds []metav1.GroupVersionKind) spec.Extensions {
	if len(kinds) == 0 {
		return nil
	}
	var list []any
	for _, k := range kinds {
		list = append(list, map[string]any{"group": k.Group, "version": k.Version, "kind": k.Kind})
	}
	return spec.Extensions{"x-kubernetes-group-version-kind": list}
}
