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

// Object is an object of a custom kind. Its metadata is decoded; its other fields, the members, stay encoded until they
// are read.
type Object struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	version *Version // version whose schema the members match; nil: unknown
	members []member // sorted by name, compact; shared by copies

	// content caches the decoded members while the object is being written, for its validation. It must match the members.
	content map[string]any
	// valid reports whether the object was validated by its version.
	valid bool
	// unchanged is a version to which the object converts by a new apiVersion alone.
	unchanged atomic.Pointer[Version]
	// converted contains the stored object in other versions, as converted by the webhook.
	converted atomic.Pointer[converted]
}

// converted is a list of conversions of an object.
type converted struct {
	version *Version
	object  *Object
	next    *converted
}

// convertedTo returns the cached conversion to a version; nil: there is none.
func (o *Object) convertedTo(v *Version) *Object {
	for c := o.converted.Load(); c != nil; c = c.next {
		if c.version == v {
			return c.object
		}
	}
	return nil
}

// member is a field of an object other than apiVersion, kind and metadata.
type member struct {
	name string
	json json.RawMessage
}

var (
	_ kind.Untyped     = (*Object)(nil)
	_ json.Marshaler   = (*Object)(nil)
	_ json.Unmarshaler = (*Object)(nil)
)

// New returns an empty object for the store.
func New() kind.Object { return &Object{} }

// DeepCopyObject implements runtime.Object. The copy shares the encoded members, which are immutable.
func (o *Object) DeepCopyObject() runtime.Object {
	out := &Object{TypeMeta: o.TypeMeta, version: o.version, members: o.members}
	o.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

// MarshalJSON implements json.Marshaler. It writes kind, apiVersion, metadata, then the members by name.
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
		return append(b, `""`...) // never: encoding a string cannot fail
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

// interned returns the name of a member. Common names share memory.
func interned(name string) string {
	switch name {
	case "spec":
		return "spec"
	case "status":
		return "status"
	}
	return strings.Clone(name)
}

// compact removes white space from valid JSON.
func compact(text json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	if json.Compact(&out, text) != nil || out.Len() == len(text) {
		return text
	}
	return out.Bytes()
}

// UnmarshalStrict decodes an object that a client sent. It sets the defaults of the version and removes unknown fields.
// found contains errors for unknown and duplicate fields. UnmarshalStrict calls admit with the memory that the defaults
// take in addition to data.
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

// fill sets the object to the content of all, and returns the paths of removed fields. The caller must not use all
// afterwards.
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

// unlimited admits any size up to the limit of Defaults. It is for objects that are already in memory.
func unlimited(int) error { return nil }

// set sets the members to those of all. The caller must not use all afterwards.
func (o *Object) set(all map[string]any) error {
	o.members, o.content, o.valid = make([]member, 0, len(all)), all, false
	for name, value := range all {
		if name == "kind" || name == "apiVersion" || name == "metadata" {
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

// Content returns the decoded object: kind, apiVersion, metadata and the members. The caller may modify it.
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

// current is Content, from the object's cache if it has one. The caller must not modify the members.
func (o *Object) current() (map[string]any, error) {
	if o.content == nil {
		return o.Content()
	}
	return o.withMeta(o.content)
}

// Unstructured returns the decoded object for server-side apply.
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
	return ok && o.TypeMeta == with.TypeMeta && o.EqualContent(with) &&
		equality.Semantic.DeepEqual(&o.ObjectMeta, &with.ObjectMeta)
}

// EqualContent reports whether both objects have the same content apart from their metadata.
func (o *Object) EqualContent(other *Object) bool {
	return slices.EqualFunc(o.members, other.members, func(a, b member) bool {
		return a.name == b.name && bytes.Equal(a.json, b.json)
	})
}

// member returns the encoded value of a member; nil if the object does not have it.
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
