// Package encoded checks objects against the schema of their kind while they are JSON: one pass over the text, without a tree of
// decoded values, in the place of decoding, defaulting, pruning, validating and encoding one after the other.
//
// It accepts only what it knows to be valid, and it makes of that what upstream's packages make of it. Everything else (an unknown
// field, a value out of range, a part of a schema that needs more than the value at hand) it leaves to them, and they have the errors.
package encoded

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// Schema is a structural schema in the form that Read follows.
type Schema struct{ root node }

// form is what a value must be.
type form uint8

const (
	unsupported form = iota // the value is left to upstream's packages
	free                    // anything
	object
	array
	text
	integer
	number
	boolean
	intOrText
)

var forms = map[string]form{"object": object, "array": array, "string": text, "integer": integer, "number": number, "boolean": boolean}

// node is the schema of a value.
type node struct {
	form form

	properties map[string]*property
	others     *node // values of further fields; nil: there are none
	required   int   // how many properties are
	defaults   int   // how many properties have one

	items  *node
	unique bool     // no two items are equal
	keys   []string // of items, if no two may have the same: x-kubernetes-list-map-keys

	least, most       *int64 // length, items or properties
	minimum, maximum  *float64
	overMin, underMax bool // the limits themselves are excluded
	int32             bool
	pattern           func() *regexp.Regexp // compiled when it is needed; nil: there is none
	format            string
	enum              []string // encoded
}

// property is a field of an object.
type property struct {
	name     string
	value    *node
	required bool
	preset   []byte // its default, encoded; nil: none
}

// anything is the schema of what is kept as it is.
var anything = &node{form: free}

// Of returns the schema in the form that Read follows; nil: none of its objects can be read that way.
func Of(s *schema.Structural) *Schema {
	root := *s
	root.Properties = map[string]schema.Structural{}
	for name, p := range s.Properties {
		if !isMeta(name) {
			root.Properties[name] = p
		} else if !plain(&p) {
			return nil // metadata is validated with the object
		}
	}
	if v := root.ValueValidation; v != nil {
		only := *v
		only.Required = slices.DeleteFunc(slices.Clone(v.Required), isMeta)
		root.ValueValidation = &only
		if v.MinProperties != nil || v.MaxProperties != nil || slices.Contains(v.Required, "status") {
			return nil // a creation drops the status of what was read
		}
	}
	m := maker{left: maxWork}
	out := &Schema{*m.nodeOf(&root)}
	if out.root.form != object || m.left < 0 {
		return nil
	}
	return out
}

func isMeta(name string) bool { return name == "kind" || name == "apiVersion" || name == "metadata" }

// plain reports whether a schema of kind, apiVersion or metadata says no more than all objects have.
func plain(s *schema.Structural) bool {
	return len(s.Properties) == 0 && s.AdditionalProperties == nil && s.Default.Object == nil && !s.XEmbeddedResource && len(s.XValidations) == 0 &&
		(s.ValueValidation == nil || isEmpty(s.ValueValidation))
}

func isEmpty(v *schema.ValueValidation) bool {
	return len(v.Enum) == 0 && v.MaxLength == nil && v.MinLength == nil && v.Pattern == "" && v.Format == "" && len(v.Required) == 0 &&
		v.MinProperties == nil && v.MaxProperties == nil && noJunctors(v)
}

func noJunctors(v *schema.ValueValidation) bool {
	return len(v.AllOf) == 0 && len(v.OneOf) == 0 && len(v.AnyOf) == 0 && v.Not == nil
}

// maxWork bounds the defaults within defaults of a schema, in bytes and look-ups: they can double with each level.
const maxWork = 256 << 10

// maker makes the nodes of one schema.
type maker struct{ left int }

// nodeOf returns the schema of a value. One that is not understood completely is unsupported.
func (m *maker) nodeOf(s *schema.Structural) *node {
	n := &node{form: forms[s.Type]}
	switch {
	case s.XEmbeddedResource:
		return &node{}
	case s.XIntOrString:
		n.form = intOrText
	case s.Type == "" && s.XPreserveUnknownFields && len(s.Properties) == 0 && s.AdditionalProperties == nil && s.Items == nil && s.ValueValidation == nil:
		return anything
	}
	if n.form == object {
		m.fields(n, s)
	}
	if n.form == array {
		m.list(n, s)
	}
	if v := s.ValueValidation; v != nil && !n.limits(v) {
		return &node{}
	}
	return n
}

// fields sets what an object may contain.
func (m *maker) fields(n *node, s *schema.Structural) {
	switch more := s.AdditionalProperties; {
	case more != nil && more.Structural != nil:
		n.others = m.nodeOf(more.Structural)
	case more != nil: // fields of such values are removed
		n.form = unsupported
		return
	case s.XPreserveUnknownFields:
		n.others = anything
	}
	n.properties = make(map[string]*property, len(s.Properties))
	for name := range s.Properties {
		if strings.ContainsFunc(name, func(c rune) bool { return c >= utf8.RuneSelf || !isPlain(byte(c)) }) {
			n.form = unsupported
			return
		}
		value := s.Properties[name]
		p := &property{name: name, value: m.nodeOf(&value)}
		if value.Default.Object != nil {
			if p.preset = m.preset(&value); p.preset == nil {
				n.form = unsupported
				return
			}
			n.defaults++
		}
		n.properties[name] = p
	}
}

// preset returns the default of a value, encoded, with the defaults within it; nil: that is too much.
func (m *maker) preset(s *schema.Structural) []byte {
	value, ok := m.copied(s.Default.Object)
	if !ok || !m.complete(value, s) {
		return nil
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return encoded
}

// copied returns a copy of a default.
func (m *maker) copied(x any) (any, bool) {
	const each = 16
	if encoded, err := json.Marshal(x); err != nil || len(encoded) > m.left {
		m.left = -1
		return nil, false
	} else if m.left -= each + len(encoded); m.left < 0 {
		return nil, false
	}
	return runtime.DeepCopyJSONValue(x), true
}

// complete is upstream's defaulting.Default with a limit, for values without nulls; false: the limit is reached, or there is a null.
func (m *maker) complete(x any, s *schema.Structural) bool {
	if s == nil {
		return true
	}
	switch x := x.(type) {
	case nil:
		return false
	case map[string]any:
		return m.completeObject(x, s)
	case []any:
		for _, item := range x {
			if !m.complete(item, s.Items) {
				return false
			}
		}
	}
	return true
}

func (m *maker) completeObject(x map[string]any, s *schema.Structural) bool {
	if m.left -= len(s.Properties); m.left < 0 {
		return false
	}
	for name := range s.Properties {
		value := s.Properties[name]
		_, found := x[name]
		if !found && value.Default.Object != nil {
			var ok bool
			if x[name], ok = m.copied(value.Default.Object); !ok {
				return false
			}
			found = true
		}
		if found && !m.complete(x[name], &value) {
			return false
		}
	}
	if s.AdditionalProperties == nil {
		return true
	}
	for name, value := range x {
		if _, known := s.Properties[name]; !known && !m.complete(value, s.AdditionalProperties.Structural) {
			return false
		}
	}
	return true
}

// list sets what a list may contain.
func (m *maker) list(n *node, s *schema.Structural) {
	switch {
	case s.Items != nil:
		n.items = m.nodeOf(s.Items)
	case s.XPreserveUnknownFields:
		n.items = anything
	default:
		n.form = unsupported
	}
	switch {
	case s.XListType == nil:
	case *s.XListType == "set":
		n.unique = true
	case *s.XListType == "map":
		n.keys = s.XListMapKeys
	}
}

// limits sets what the value itself must be; false: more than is understood.
func (n *node) limits(v *schema.ValueValidation) bool {
	understood := noJunctors(v) || n.form == intOrText && onlyIntOrText(v)
	if v.UniqueItems || v.MultipleOf != nil || !understood {
		return false
	}
	switch n.form {
	case text:
		n.least, n.most = v.MinLength, v.MaxLength
	case array:
		n.least, n.most = v.MinItems, v.MaxItems
	case object:
		n.least, n.most = v.MinProperties, v.MaxProperties
	case intOrText:
		if v.MinLength != nil || v.MaxLength != nil {
			return false
		}
	}
	n.minimum, n.maximum, n.overMin, n.underMax = v.Minimum, v.Maximum, v.ExclusiveMinimum, v.ExclusiveMaximum
	return n.formatted(v) && n.listed(v.Enum) && n.require(v.Required)
}

// formatted sets the pattern and the format of a text, or the size of a number.
func (n *node) formatted(v *schema.ValueValidation) bool {
	if v.Pattern != "" {
		n.pattern = sync.OnceValue(func() *regexp.Regexp {
			compiled, _ := regexp.Compile(v.Pattern)
			return compiled // nil, which matches nothing, if the pattern is invalid
		})
	}
	switch v.Format {
	case "", "int64", "double":
	case "int32":
		n.int32 = true
	default:
		if n.form != text {
			return false
		}
		if strfmt.Default.ContainsName(v.Format) {
			n.format = v.Format
		}
	}
	return true
}

func (n *node) listed(enum []schema.JSON) bool {
	for _, value := range enum {
		encoded, err := json.Marshal(value.Object)
		if err != nil {
			return false
		}
		n.enum = append(n.enum, string(encoded))
	}
	return true
}

func (n *node) require(names []string) bool {
	for _, name := range names {
		p := n.properties[name]
		if p == nil {
			return false
		}
		if !p.required {
			p.required = true
			n.required++
		}
	}
	return true
}

// onlyIntOrText reports whether anyOf says no more than that the value is an integer or a text.
func onlyIntOrText(v *schema.ValueValidation) bool {
	if len(v.AllOf) > 0 || len(v.OneOf) > 0 || v.Not != nil || len(v.AnyOf) != 2 {
		return false
	}
	for i, typ := range []string{"integer", "string"} {
		one := &v.AnyOf[i]
		if one.ForbiddenGenerics.Type != typ || !isEmpty(&one.ValueValidation) || one.Minimum != nil || one.Maximum != nil || one.MultipleOf != nil {
			return false
		}
	}
	return true
}
