package custom

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"monopod/apiserver/registry/definitions"
)

const (
	metaV1    = "io.k8s.apimachinery.pkg.apis.meta.v1."
	prefixV2  = "#/definitions/"
	prefixV3  = "#/components/schemas/"
	gvk       = "x-kubernetes-group-version-kind"
	apiConvs  = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
	embedded  = "x-kubernetes-embedded-resource"
	preserved = "x-kubernetes-preserve-unknown-fields"
)

// Revision identifies the result of Definitions. It changes with the definition.
func (v *Version) Revision() string {
	return fmt.Sprintf("%s/%s/%d/%s", v.def.UID, v.name, v.def.Generation, v.def.Status.AcceptedNames.Kind)
}

// Definitions implements kind.Schema.
func (v *Version) Definitions() ([]*definitions.Definition, error) {
	structural, err := v.structural()
	if err != nil {
		return nil, err
	}
	unfolded := structural.Unfold()
	one := &definitions.Definition{Name: v.modelName(), Refs: []string{metaV1 + "ObjectMeta"},
		Kinds: v.kindsOf(v.def.Status.AcceptedNames.Kind)}
	if one.V3, err = json.Marshal(v.model(unfolded, prefixV3)); err != nil {
		return nil, err
	}
	if one.V2, err = json.Marshal(v.model(unfolded, prefixV2)); err != nil {
		return nil, err
	}
	list := &definitions.Definition{Name: v.modelName() + "List", Refs: []string{one.Name, metaV1 + "ListMeta"},
		Kinds: v.kindsOf(v.def.Status.AcceptedNames.ListKind)}
	if list.V3, err = json.Marshal(v.list(prefixV3)); err != nil {
		return nil, err
	}
	list.V2, err = json.Marshal(v.list(prefixV2))
	return []*definitions.Definition{one, list}, err
}

// structural returns the schema as a structural schema; nil: there is none.
func (v *Version) structural() (*schema.Structural, error) {
	stored, err := v.def.SchemaOf(v.spec)
	if err != nil {
		return nil, err
	}
	props, err := toInternal(stored)
	if props == nil || err != nil {
		return nil, err
	}
	return schema.NewStructural(props)
}

func (v *Version) kindsOf(kind string) []metav1.GroupVersionKind {
	return []metav1.GroupVersionKind{{Group: v.def.Spec.Group, Version: v.name, Kind: kind}}
}

// modelName returns the name of the OpenAPI definition: com.example.v1.Widget for widgets of example.com.
func (v *Version) modelName() string {
	parts := strings.Split(v.def.Spec.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, v.name, v.def.Status.AcceptedNames.Kind), ".")
}

// model returns the schema of the kind. The prefix of its references selects OpenAPI v3 or v2.
func (v *Version) model(s *schema.Structural, prefix string) *spec.Schema {
	version2 := prefix == prefixV2
	out := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	if s != nil && (!version2 || !s.XPreserveUnknownFields && !v.def.Spec.PreserveUnknownFields) {
		if version2 {
			s = openapiv2.ToStructuralOpenAPIV2(s)
		}
		out = s.ToKubeOpenAPI()
		addMeta(out, prefix)
		addEmbedded(out, prefix)
	}
	out.AddExtension(gvk,
		[]any{map[string]any{"group": v.def.Spec.Group, "version": v.name, "kind": v.def.Status.AcceptedNames.Kind}})
	return out
}

// addMeta adds the fields that every object has.
func addMeta(s *spec.Schema, prefix string) {
	s.SetProperty("metadata",
		reference(prefix, "ObjectMeta", "Standard object's metadata. More info: "+apiConvs+"#metadata"))
	addTypeMeta(s)
}

// reference returns the schema of a property that refers to another schema. In OpenAPI v3, readers ignore siblings of a
// reference.
func reference(prefix, name, description string) spec.Schema {
	ref := spec.RefSchema(prefix + metaV1 + name)
	if prefix == prefixV2 {
		return *ref.WithDescription(description)
	}
	return *new(spec.Schema).WithDescription(description).WithAllOf(*ref)
}

func addTypeMeta(s *spec.Schema) {
	docs := metav1.TypeMeta{}.SwaggerDoc()
	for _, name := range []string{"apiVersion", "kind"} {
		s.SetProperty(name, *spec.StringProperty().WithDescription(docs[name]))
	}
}

// addEmbedded adds these fields to the embedded objects in a schema.
func addEmbedded(s *spec.Schema, prefix string) {
	for name, property := range s.Properties {
		addEmbedded(&property, prefix)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		addEmbedded(s.Items.Schema, prefix)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		addEmbedded(s.AdditionalProperties.Schema, prefix)
	}
	if open, _ := s.Extensions.GetBool(preserved); open && prefix == prefixV2 {
		return // otherwise kubectl rejects fields that are not listed
	}
	if is, _ := s.Extensions.GetBool(embedded); !is {
		return
	}
	addMeta(s, prefix)
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
}

// list returns the schema of lists.
func (v *Version) list(prefix string) *spec.Schema {
	names := v.def.Status.AcceptedNames
	items := spec.ArrayProperty(spec.RefSchema(prefix + v.modelName())).WithDescription(
		fmt.Sprintf("List of %s. More info: %s", names.Plural, apiConvs))
	s := new(spec.Schema).Typed("object", "").WithDescription(
		fmt.Sprintf("%s is a list of %s", names.ListKind, names.Kind)).WithRequired("items").
		SetProperty("items", *items).
		SetProperty("metadata", reference(prefix, "ListMeta", "Standard list metadata. More info: "+apiConvs+"#types-kinds"))
	addTypeMeta(s)
	s.AddExtension(gvk, []any{map[string]any{"group": v.def.Spec.Group, "version": v.name, "kind": names.ListKind}})
	return s
}

// Types implements kind.Schema.
func (v *Version) Types() (managedfields.TypeConverter, error) { return v.types.Get() }

func (v *Version) newTypes() (managedfields.TypeConverter, error) {
	shared, err := v.kinds.shared.Get()
	if err != nil {
		return nil, err
	}
	schemas := map[string]*spec.Schema{}
	for i := range v.def.Spec.Versions { // managedFields may name any version
		other := &Version{def: v.def, spec: &v.def.Spec.Versions[i], name: v.def.Spec.Versions[i].Name}
		structural, err := other.structural()
		if err != nil {
			return nil, err
		}
		if structural != nil {
			structural = structural.Unfold().StripValueValidations().StripNullable()
		}
		schemas[other.modelName()] = other.model(structural, prefixV3)
	}
	for _, d := range shared.Closure(metaV1 + "ObjectMeta") {
		schemas[d.Name] = &spec.Schema{}
		if err := json.Unmarshal(d.V3, schemas[d.Name]); err != nil {
			return nil, err
		}
	}
	return managedfields.NewTypeConverter(schemas, v.def.Spec.PreserveUnknownFields)
}
