// Package crd is CustomResourceDefinitions as a server keeps them: with their schemas encoded and compressed, because
// decoded they take several times as much memory as all the rest of an idle server, and most of them are not used.
package crd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"monopod/apiserver/kit/client"
	"monopod/store"
)

// Definition is a CustomResourceDefinition. As a client sends it, it is the upstream type alone. Once it is packed, as
// it is when it comes from a store, each schema in its versions is a placeholder: read it with SchemaOf, or all of them
// with Full. Everything else is decoded. To change a schema, replace the placeholder; versions may be moved and
// removed.
type Definition struct {
	apiextensionsv1.CustomResourceDefinition

	packed *packed // shared by copies; nil: no schema is packed
}

var (
	_ client.Object = (*Definition)(nil)
	_ store.Compact = (*Definition)(nil)
)

// Of returns a definition of the upstream type, which it takes over.
func Of(def *apiextensionsv1.CustomResourceDefinition) *Definition {
	return &Definition{CustomResourceDefinition: *def}
}

// Resource returns the resource of definitions.
func (*Definition) Resource() schema.GroupVersionResource { return client.CustomResourceDefinitions }

// DeepCopy returns a copy, which shares the packed schemas.
func (d *Definition) DeepCopy() *Definition {
	out := &Definition{packed: d.packed}
	d.CustomResourceDefinition.DeepCopyInto(&out.CustomResourceDefinition)
	return out
}

// DeepCopyObject implements runtime.Object.
func (d *Definition) DeepCopyObject() runtime.Object { return d.DeepCopy() }

// Full returns a decoded copy of the upstream type.
func (d *Definition) Full() (*apiextensionsv1.CustomResourceDefinition, error) {
	out := d.CustomResourceDefinition.DeepCopy()
	for i := range out.Spec.Versions {
		if s := out.Spec.Versions[i].Schema; s != nil {
			var err error
			if s.OpenAPIV3Schema, err = d.packed.decode(s.OpenAPIV3Schema); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// Typed returns Full, for what needs the upstream type.
func (d *Definition) Typed() (client.Object, error) { return d.Full() }

// SetTyped sets the definition to obj, which is of the upstream type, and takes it over.
func (d *Definition) SetTyped(obj client.Object) error {
	def, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return fmt.Errorf("a %T is not a CustomResourceDefinition", obj)
	}
	d.CustomResourceDefinition, d.packed = *def, nil
	return nil
}

// SchemaOf returns the schema of a version of the definition, decoded; nil: it has none. The caller must not modify it.
func (d *Definition) SchemaOf(
	version *apiextensionsv1.CustomResourceDefinitionVersion) (*apiextensionsv1.JSONSchemaProps, error) {
	if version.Schema == nil {
		return nil, nil
	}
	return d.packed.decode(version.Schema.OpenAPIV3Schema)
}

// KeepSpec sets the spec to that of was, shared: it is most of a definition.
func (d *Definition) KeepSpec(was *Definition) { d.Spec, d.packed = was.Spec, was.packed }

// SharesSchemas reports whether both definitions have the same packed schemas, so that their specs are equal if what is
// decoded is.
func (d *Definition) SharesSchemas(other *Definition) bool {
	return d.packed != nil && d.packed == other.packed
}

// Pack implements store.Compact: it encodes the schemas and puts placeholders in their places.
func (d *Definition) Pack() error {
	versions := slices.Clone(d.Spec.Versions)
	next := &packed{}
	changed := false
	for i := range versions {
		s := versions[i].Schema
		if s == nil || s.OpenAPIV3Schema == nil {
			continue
		}
		at := placed(s.OpenAPIV3Schema, d.packed.count())
		if changed = changed || at != next.count(); at >= 0 {
			next.schemas = append(next.schemas, d.packed.schemas[at])
		} else {
			raw, err := json.Marshal(s.OpenAPIV3Schema)
			if err != nil {
				return err
			}
			next.add(raw)
		}
		versions[i].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: placeholder(next.count() - 1)}
	}
	if changed || next.count() != d.packed.count() {
		d.Spec.Versions, d.packed = versions, next
	}
	return nil
}

// Weight implements store.Compact.
func (d *Definition) Weight() int {
	const rest = 4 << 10 // names, columns, status
	return rest + d.packed.size()
}

// MarshalJSON implements json.Marshaler: the result is that of the upstream type.
func (d *Definition) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(&d.CustomResourceDefinition)
	if err != nil || d.packed == nil {
		return data, err
	}
	return d.packed.join(data)
}

// UnmarshalJSON implements json.Unmarshaler. Nothing is packed.
func (d *Definition) UnmarshalJSON(data []byte) error {
	d.packed = nil
	return json.Unmarshal(data, &d.CustomResourceDefinition)
}

// UnmarshalStrict decodes a definition that a client sent, and returns its unknown and duplicate fields.
func (d *Definition) UnmarshalStrict(data []byte, _ func(int) error) ([]error, error) {
	d.packed = nil
	return kjson.UnmarshalStrict(data, &d.CustomResourceDefinition)
}

// Unmarshal decodes protobuf.
func (d *Definition) Unmarshal(data []byte) error {
	d.packed = nil
	return d.CustomResourceDefinition.Unmarshal(data)
}

// Load implements store.Compact.
func (d *Definition) Load(data []byte) error {
	light, found := split(data)
	if err := json.Unmarshal(light, &d.CustomResourceDefinition); err == nil && d.placeholders() == len(found) {
		d.packed = &packed{}
		for _, raw := range found {
			d.packed.add(raw)
		}
		return nil
	}
	*d = Definition{} // its schemas are not where this package writes them
	if err := d.UnmarshalJSON(data); err != nil {
		return err
	}
	return d.Pack()
}

// placeholders is the number of the schemas if all of them are placeholders in order, otherwise -1.
func (d *Definition) placeholders() (n int) {
	for _, v := range d.Spec.Versions {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		if v.Schema.OpenAPIV3Schema.ID != placeholder(n).ID {
			return -1
		}
		n++
	}
	return n
}

// prefix begins the ID of a placeholder. Validation refuses schemas with an ID.
const prefix = "monopod/"

// placeholder returns what is in the place of the packed schema at.
func placeholder(at int) *apiextensionsv1.JSONSchemaProps {
	return &apiextensionsv1.JSONSchemaProps{ID: prefix + strconv.Itoa(at)}
}

// placed returns which of n packed schemas s is a placeholder of; -1: of none.
func placed(s *apiextensionsv1.JSONSchemaProps, n int) int {
	if s == nil {
		return -1
	}
	number, ok := strings.CutPrefix(s.ID, prefix)
	at, err := strconv.Atoi(number)
	if !ok || err != nil || at < 0 || at >= n {
		return -1
	}
	return at
}
