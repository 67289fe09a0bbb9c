package custom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"monopod/apiserver/registry/kind"
)

// Object is an object of a custom kind. Its metadata is decoded; the rest, its members, stays encoded until
// something reads it.
type Object struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	version *Version // the schema that the members match; nil: unknown
	members []member // sorted by name, compact; shared by copies

	// content is the decoded members of an object that is being written, so that its validation does not decode
	// them again. It must match the members.
	content map[string]any
	// valid: the object was validated by its version.
	valid bool
	// unchanged is a version to which the object converts without a change other than its apiVersion.
	unchanged atomic.Pointer[Version]
	// converted is the stored object in other versions, as the webhook converted it.
	converted atomic.Pointer[converted]
}

// converted is an object in a version, and in others.
type converted struct {
	version *Version
	object  *Object
	next    *converted
}

// convertedTo returns the object as it was converted to a version; nil: it was not.
func (o *Object) convertedTo(v *Version) *Object {
	for c := o.converted.Load(); c != nil; c = c.next {
		if c.version == v {
			return c.object
		}
	}
	return nil
}

// cacheConverted keeps the object in a version, and drops those of earlier states of the definition.
func (o *Object) cacheConverted(v *Version, object *Object) {
	out := &converted{version: v, object: object}
	for c := o.converted.Load(); c != nil; c = c.next {
		if c.version.def == v.def && c.version != v {
			out.next = &converted{c.version, c.object, out.next}
		}
	}
	o.converted.Store(out)
}

// member is a field of an object besides apiVersion, kind and metadata.
type member struct {
	name string
	json json.RawMessage
}

var (
	_ kind.Untyped     = (*Object)(nil)
	_ json.Marshaler   = (*Object)(nil)
	_ json.Unmarshaler = (*Object)(nil)
)

// New returns an empty object, for a store.
func New() kind.Object { return &Object{} }

// DeepCopyObject implements runtime.Object. The copy shares the encoded members, which must not be modified.
func (o *Object) DeepCopyObject() runtime.Object {
	out := &Object{TypeMeta: o.TypeMeta, version: o.version, members: o.members}
	o.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

// MarshalJSON implements json.Marshaler: kind, apiVersion, metadata, then the members by name.
func (o *Object) MarshalJSON() ([]byte, error) {
	meta, err := json.Marshal(&o.ObjectMeta)
	if err != nil {
		return nil, err
	}
	size := len(meta) + len(o.Kind) + len(o.APIVersion) + 64
	for _, m := range o.members {
		size += len(m.name) + len(m.json) + 8
	}
	b := make([]byte, 0, size)
	b = appendString(append(b, `{"kind":`...), o.Kind)
	b = appendString(append(b, `,"apiVersion":`...), o.APIVersion)
	b = append(append(b, `,"metadata":`...), meta...)
	for _, m := range o.members {
		b = append(appendString(append(b, ','), m.name), ':')
		b = append(b, m.json...)
	}
	return append(b, '}'), nil
}

// appendString appends s as JSON.
func appendString(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		return append(b, `""`...) // a string can always be encoded
	}
	return append(b, text...)
}

// UnmarshalJSON implements json.Unmarshaler for stored objects: the members stay encoded.
func (o *Object) UnmarshalJSON(data []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	o.members, o.content, o.version, o.valid = make([]member, 0, len(fields)), nil, nil, false
	for name, text := range fields {
		var err error
		switch name {
		case "kind":
			err = json.Unmarshal(text, &o.Kind)
		case "apiVersion":
			err = json.Unmarshal(text, &o.APIVersion)
		case "metadata":
			o.ObjectMeta = metav1.ObjectMeta{}
			err = json.Unmarshal(text, &o.ObjectMeta)
		default:
			o.members = append(o.members, member{interned(name), compact(text)})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	o.sort()
	return nil
}

func (o *Object) sort() {
	slices.SortFunc(o.members, func(a, b member) int { return strings.Compare(a.name, b.name) })
}

// interned returns the name of a member; the usual names need no memory.
func interned(name string) string {
	switch name {
	case "spec":
		return "spec"
	case "status":
		return "status"
	}
	return strings.Clone(name)
}

// compact returns valid JSON without spaces.
func compact(text json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	if json.Compact(&out, text) != nil || out.Len() == len(text) {
		return text
	}
	return out.Bytes()
}

// UnmarshalStrict decodes an object that a client sent: it sets the defaults of its version and removes the
// fields that its schema does not have. It returns these and the fields that occur twice. admit is asked for the memory
// that the defaults take in addition to the data.
func (o *Object) UnmarshalStrict(data []byte, admit func(bytes int) error) (found []error, err error) {
	all := map[string]any{}
	found, err = kjson.UnmarshalStrict(data, &all)
	if err != nil {
		return nil, err
	}
	if all == nil {
		return nil, fmt.Errorf("%.100s is not an object", data)
	}
	unknown, err := o.fill(all, admit)
	for _, path := range unknown {
		found = append(found, fmt.Errorf("unknown field %q", path))
	}
	return found, err
}

// fill sets the object to what all contains, and returns the fields that were removed. It takes over all.
func (o *Object) fill(all map[string]any, admit func(bytes int) error) (unknown []string, err error) {
	c, err := o.version.compiled()
	if err != nil {
		return nil, err
	}
	for name, at := range map[string]*string{"kind": &o.Kind, "apiVersion": &o.APIVersion} {
		switch value := all[name].(type) {
		case nil:
		case string:
			*at = value
		default:
			return nil, fmt.Errorf("%s must be a string", name)
		}
	}
	meta, unknown, err := c.normalize(all, admit)
	if err != nil {
		return nil, err
	}
	o.ObjectMeta = metav1.ObjectMeta{}
	if meta != nil {
		o.ObjectMeta = *meta
	}
	return unknown, o.set(all)
}

// unlimited admits any size within bounds.Defaults: of an object that is in memory several times already.
func unlimited(int) error { return nil }

// set sets the members to those of all, which it takes over.
func (o *Object) set(all map[string]any) error {
	o.members, o.content, o.valid = make([]member, 0, len(all)), all, false
	for name, value := range all {
		if isMeta(name) {
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		o.members = append(o.members, member{interned(name), text})
	}
	o.sort()
	return nil
}

// isMeta reports whether a field of an object is not one of its members.
func isMeta(name string) bool { return name == "kind" || name == "apiVersion" || name == "metadata" }

// Content returns the object decoded: kind, apiVersion, metadata and the members. The caller may modify it.
func (o *Object) Content() (map[string]any, error) {
	all := make(map[string]any, len(o.members)+3)
	for _, m := range o.members {
		value, err := decoded(m.json)
		if err != nil {
			return nil, err
		}
		all[m.name] = value
	}
	return o.withMeta(all)
}

func decoded(text json.RawMessage) (value any, err error) {
	return value, kjson.UnmarshalCaseSensitivePreserveInts(text, &value)
}

// withMeta sets kind, apiVersion and metadata in all.
func (o *Object) withMeta(all map[string]any) (map[string]any, error) {
	meta, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o.ObjectMeta)
	if err != nil {
		return nil, err
	}
	if meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	all["kind"], all["apiVersion"], all["metadata"] = o.Kind, o.APIVersion, meta
	return all, nil
}

// current returns Content, from the object's cache if it has one. The caller must not modify the members.
func (o *Object) current() (map[string]any, error) {
	if o.content == nil {
		return o.Content()
	}
	return o.withMeta(o.content)
}

// Unstructured returns the object decoded, for server-side apply.
func (o *Object) Unstructured() (*unstructured.Unstructured, error) {
	all, err := o.Content()
	return &unstructured.Unstructured{Object: all}, err
}

// FromUnstructured is the inverse of Unstructured. It sets defaults and removes unknown fields.
func (o *Object) FromUnstructured(u *unstructured.Unstructured) error {
	_, err := o.fill(u.Object, unlimited)
	return err
}

// Equal implements kind.Untyped.
func (o *Object) Equal(other kind.Object) bool {
	with, ok := other.(*Object)
	return ok && o.TypeMeta == with.TypeMeta && o.Same(with) &&
		equality.Semantic.DeepEqual(&o.ObjectMeta, &with.ObjectMeta)
}

// Same reports whether both objects have the same content, metadata aside.
func (o *Object) Same(other *Object) bool {
	return slices.EqualFunc(o.members, other.members, func(a, b member) bool {
		return a.name == b.name && bytes.Equal(a.json, b.json)
	})
}

// member returns a member encoded, nil if the object does not have it.
func (o *Object) member(name string) json.RawMessage {
	for _, m := range o.members {
		if m.name == name {
			return m.json
		}
	}
	return nil
}

// replace sets a member, or removes it if text is nil.
func (o *Object) replace(name string, text json.RawMessage) {
	if bytes.Equal(o.member(name), text) {
		return
	}
	members := slices.DeleteFunc(slices.Clone(o.members), func(m member) bool { return m.name == name })
	if text != nil {
		members = append(members, member{interned(name), text})
	}
	o.members, o.content = members, nil
	o.sort()
}
