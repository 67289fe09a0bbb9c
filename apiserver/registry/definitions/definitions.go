// Package definitions contains the OpenAPI schemas of Kubernetes' types.
//
// definitions.zst, which testdata/openapi generates from the modules k8s.io/api and k8s.io/apimachinery, is a
// compressed file: a line with the versions of these modules, then a line of JSON for each definition. Read
// decompresses it; before, it takes no memory. metrics.jsonl is written by hand: neither module contains
// metrics.k8s.io.
package definitions

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/klauspost/compress/zstd"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:embed definitions.zst
var compressed []byte

//go:embed metrics.jsonl
var metrics []byte

// Definition is a schema for OpenAPI v3 and v2. Both are shared; callers must not modify them.
type Definition struct {
	Name  string                    `json:"name"`
	Kinds []metav1.GroupVersionKind `json:"kinds"`
	Refs  []string                  `json:"refs"` // the definitions that it refers to
	V3    json.RawMessage           `json:"v3"`
	V2    json.RawMessage           `json:"v2"`
}

// Set is a complete set of definitions: each refers only to others of the set.
type Set struct {
	// Modules are the versions of the modules that contain the types.
	Modules map[string]string

	byName map[string]*Definition
	byKind map[schema.GroupVersionKind]*Definition
}

// Read decompresses the definitions, about 2 MB.
func Read() (*Set, error) {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	plain, err := r.DecodeAll(compressed, nil)
	if err != nil {
		return nil, fmt.Errorf("definitions.zst: %w", err)
	}
	s := &Set{byName: map[string]*Definition{}, byKind: map[schema.GroupVersionKind]*Definition{}}
	head, rest, _ := bytes.Cut(plain, []byte("\n"))
	if err := json.Unmarshal(head, &s); err != nil {
		return nil, fmt.Errorf("definitions.zst: %w", err)
	}
	if err := s.addAll("definitions.zst", rest); err != nil {
		return nil, err
	}
	return s, s.addAll("metrics.jsonl", metrics)
}

// addAll adds the definitions of a file, one for each line.
func (s *Set) addAll(file string, lines []byte) error {
	for line := range bytes.Lines(lines) {
		d := &Definition{}
		if err := json.Unmarshal(line, d); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		s.add(d)
	}
	return nil
}

func (s *Set) add(d *Definition) {
	s.byName[d.Name] = d
	for _, k := range d.Kinds {
		s.byKind[schema.GroupVersionKind(k)] = d
	}
}

// With returns the set with additional definitions.
func (s *Set) With(more ...*Definition) *Set {
	if len(more) == 0 {
		return s
	}
	out := &Set{Modules: s.Modules, byName: maps.Clone(s.byName), byKind: maps.Clone(s.byKind)}
	for _, d := range more {
		out.add(d)
	}
	return out
}

// Names returns the names of all definitions, sorted.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.byName)) }

// Get returns the named definition, or nil.
func (s *Set) Get(name string) *Definition { return s.byName[name] }

// OfKind returns the definition of a kind, or nil.
func (s *Set) OfKind(gvk schema.GroupVersionKind) *Definition { return s.byKind[gvk] }

// Closure returns the named definitions and all definitions that they refer to, sorted by name. It skips unknown names.
func (s *Set) Closure(names ...string) []*Definition {
	seen := map[string]*Definition{}
	var visit func(name string)
	visit = func(name string) {
		d := s.byName[name]
		if d == nil || seen[name] != nil {
			return
		}
		seen[name] = d
		for _, ref := range d.Refs {
			visit(ref)
		}
	}
	for _, name := range names {
		visit(name)
	}
	out := make([]*Definition, 0, len(seen))
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		out = append(out, seen[name])
	}
	return out
}
