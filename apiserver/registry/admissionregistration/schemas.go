package admissionregistration

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"monopod/apiserver/registry/definitions"
	"monopod/apiserver/registry/kind"
)

// schemas resolves the schemas of the served kinds.
type schemas struct {
	set    *definitions.Set
	served []kind.Resource
	read   map[string]*spec.Schema // by name, references unresolved
	types  int
}

// typeOf returns the CEL type of a kind's objects; nil: unknown, so that expressions are not checked against it.
func (s *schemas) typeOf(gvk schema.GroupVersionKind) *apiservercel.DeclType {
	for i := range s.served {
		if res := &s.served[i]; res.Schema != nil && res.GVK() == gvk {
			if more, err := res.Schema.Definitions(); err == nil {
				s.set = s.set.With(more...)
			}
		}
	}
	def := s.set.OfKind(gvk)
	if def == nil {
		return nil
	}
	whole := s.named(def.Name, map[string]bool{})
	if whole == nil {
		return nil
	}
	t := common.SchemaDeclType(&openapi.Schema{Schema: whole}, true)
	if t == nil {
		return nil
	}
	s.types++
	return t.MaybeAssignTypeName(fmt.Sprintf("%s%d", gvk.Kind, s.types))
}

// named returns a definition with its references resolved. within contains the enclosing definitions; a recursive
// reference becomes an object of any kind.
func (s *schemas) named(name string, within map[string]bool) *spec.Schema {
	if within[name] {
		return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	}
	plain := s.read[name]
	if plain == nil {
		def := s.set.Get(name)
		if def == nil {
			return nil
		}
		plain = &spec.Schema{}
		if json.Unmarshal(def.V3, plain) != nil {
			return nil
		}
		s.read[name] = plain
	}
	within = maps.Clone(within)
	within[name] = true
	return s.whole(plain, within)
}

// whole returns a schema with its references resolved.
func (s *schemas) whole(of *spec.Schema, within map[string]bool) *spec.Schema {
	if name := reference(of); name != "" {
		return s.named(name, within)
	}
	out := *of
	if len(of.Properties) > 0 {
		out.Properties = make(map[string]spec.Schema, len(of.Properties))
		for name, p := range of.Properties {
			if p := s.whole(&p, within); p != nil {
				out.Properties[name] = *p
			}
		}
	}
	if of.AdditionalProperties != nil && of.AdditionalProperties.Schema != nil {
		out.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: s.whole(of.AdditionalProperties.Schema, within)}
	}
	if of.Items != nil && of.Items.Schema != nil {
		out.Items = &spec.SchemaOrArray{Schema: s.whole(of.Items.Schema, within)}
	}
	return &out
}

// reference returns the name of the definition that a schema refers to, directly or by allOf; empty: none.
func reference(of *spec.Schema) string {
	if text := of.Ref.String(); text != "" {
		return path.Base(text)
	}
	for i := range of.AllOf {
		if name := reference(&of.AllOf[i]); name != "" {
			return name
		}
	}
	return ""
}
