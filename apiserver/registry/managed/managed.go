// Package managed maintains metadata.managedFields, the managers of an object's fields. Server-side apply uses them to
// merge and to detect conflicts.
//
// An object is tracked from its first apply on. Before that its managedFields are empty, and writes have no extra cost.
// The first apply assigns the existing fields to the manager "before-first-apply" (upstream's skipNonAppliedManager,
// which an API server uses for objects older than the feature), or to kubectl if kubectl applied them client-side. All
// later writes are recorded.
//
// The schemas for merging are in memory only while they are in use.
package managed

import (
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/idlecache"
	"monopod/apiserver/registry/definitions"
	"monopod/apiserver/registry/kind"
)

// idle is the time that the schemas stay in memory after their last use. They take 0.6 MB and 40 ms to build. GitOps
// tools apply every three minutes.
const idle = 5 * time.Minute

// Fields tracks managed fields. Its methods are safe for concurrent use.
type Fields struct {
	types *idlecache.Value[managedfields.TypeConverter]
}

// New returns Fields with the schemas of Kubernetes' own types.
func New(clock clock.WithDelayedExecution) *Fields {
	return &Fields{types: idlecache.New(clock, idle, newTypes)}
}

// newTypes builds the schemas by which objects merge.
func newTypes() (managedfields.TypeConverter, error) {
	set, err := definitions.Read()
	if err != nil {
		return nil, err
	}
	schemas := map[string]*spec.Schema{}
	for _, name := range set.Names() {
		schemas[name] = &spec.Schema{}
		if err := json.Unmarshal(set.Get(name).V3, schemas[name]); err != nil {
			return nil, err
		}
	}
	return managedfields.NewTypeConverter(schemas, false)
}

// Loaded reports whether the schemas are in memory.
func (f *Fields) Loaded() bool { return f.types.Held() }

// manager returns the field manager for a target.
func (f *Fields) manager(t Target) (*managedfields.FieldManager, error) {
	types, err := f.Types(t)
	if err != nil {
		return nil, err
	}
	gvk := t.kind()
	forms := converter{t}
	return managedfields.NewDefaultFieldManager(types, forms, forms, forms, gvk, gvk.GroupVersion(), t.Subresource,
		t.reset())
}

// Types returns the schemas by which objects of the target merge.
func (f *Fields) Types(t Target) (managedfields.TypeConverter, error) {
	if t.untyped() {
		return t.Resource.Schema.Types()
	}
	return f.types.Get()
}

// Tracked reports whether a write of next over cur must be recorded: the object is tracked, or the client sent
// managedFields. cur is nil for a creation.
func Tracked(next, cur kind.Object) bool {
	return len(next.GetManagedFields()) > 0 || cur != nil && len(cur.GetManagedFields()) > 0
}

// Update records that manager wrote next over cur, which is nil for a creation. It changes only next's managedFields.
// next must have its defaults, which the manager then owns. On failure next has cur's managedFields.
func (f *Fields) Update(t Target, next, cur kind.Object, manager string) error {
	if !Tracked(next, cur) {
		return nil
	}
	if cur == nil {
		cur = t.empty()
	}
	next.GetObjectKind().SetGroupVersionKind(t.kind())
	err := f.update(t, next, cur, manager)
	if err != nil {
		next.SetManagedFields(cur.GetManagedFields())
	}
	return err
}

func (f *Fields) update(t Target, next, cur kind.Object, manager string) error {
	m, err := f.manager(t)
	if err != nil {
		return err
	}
	was, err := toMergeable(cur)
	if err != nil {
		return err
	}
	is, err := toMergeable(next)
	if err != nil {
		return err
	}
	if _, err = m.Update(was.DeepCopyObject(), is, manager); err == nil && is != next {
		next.SetManagedFields(is.GetManagedFields())
	}
	return err
}

// Apply returns cur with patch applied by manager; cur is nil for a creation. It returns a conflict (409) if the patch
// changes fields of other managers, unless force takes them over.
func (f *Fields) Apply(t Target, cur kind.Object, patch *unstructured.Unstructured, manager string,
	force bool) (kind.Object, error) {
	if cur == nil {
		cur = t.empty()
	}
	m, err := f.manager(t)
	if err != nil {
		return nil, err
	}
	if cur, err = toMergeable(cur); err != nil {
		return nil, err
	}
	if cur, err = beginTracking(m, t, cur); err != nil {
		return nil, err
	}
	applied, err := m.Apply(cur.DeepCopyObject(), patch, manager, force)
	if err != nil {
		var api apierrors.APIStatus
		if errors.As(err, &api) {
			return nil, err
		}
		// The patch does not match the kind's schema: 400 (upstream: 500). Types replace Go values in the message.
		return nil, apierrors.NewBadRequest(mismatch.ReplaceAllStringFunc(err.Error(), func(text string) string {
			m := mismatch.FindStringSubmatch(text)
			return m[1] + typeName(m[2]) + m[3]
		}))
	}
	obj, ok := applied.(kind.Object)
	if !ok {
		return nil, apierrors.NewBadRequest("the patch results in no object")
	}
	return t.fromMergeable(obj)
}

// toMergeable returns an object in the form that merging takes: Untyped as a map, Packed in its Go type, others
// unchanged.
func toMergeable(obj kind.Object) (kind.Object, error) {
	if u, ok := obj.(kind.Untyped); ok {
		return u.Unstructured()
	}
	return kind.Typed(obj)
}

// fromMergeable is the inverse of toMergeable.
func (t Target) fromMergeable(obj kind.Object) (kind.Object, error) {
	if packed, ok := t.Resource.New().(kind.Packed); ok && !t.scales() {
		return packed, packed.SetTyped(obj)
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || !t.untyped() {
		return obj, nil
	}
	out := t.Resource.New().(kind.Untyped)
	if err := out.FromUnstructured(u); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out, nil
}

// mismatch matches the merge library's message about a value of a wrong type, up to the next field. The message
// contains the value in Go's syntax.
var mismatch = regexp.MustCompile(
	`(?s)(: expected [^\n]*?, got )(?:&value\.valueUnstructured\{Value:|&\{)?(.*?)(\n  \.|$)`)

// typeName returns the type of a value or type in Go's syntax.
func typeName(text string) string {
	switch {
	case strings.HasPrefix(text, "["):
		return "list"
	case strings.HasPrefix(text, "map["):
		return "map"
	case strings.HasPrefix(text, "true"), strings.HasPrefix(text, "false"), text == "bool":
		return "boolean"
	case strings.ContainsAny(text, "0123456789") && strings.Trim(text, "-.e+0123456789}") == "", text == "int64",
		text == "float64":
		return "number"
	}
	return "string"
}

// KeepTimes restores the times in managedFields if the write changed nothing else, so that it is not stored (upstream:
// IgnoreManagedFieldsTimestampsTransformer).
func KeepTimes(next, cur kind.Object) {
	now, before := next.GetManagedFields(), cur.GetManagedFields()
	if len(now) == 0 || !slices.EqualFunc(now, before, func(a, b metav1.ManagedFieldsEntry) bool {
		a.Time, b.Time = nil, nil
		return reflect.DeepEqual(a, b)
	}) {
		return
	}
	next.SetManagedFields(before)
	if !same(next, cur) {
		next.SetManagedFields(now)
	}
}

func same(next, cur kind.Object) bool {
	if u, ok := next.(kind.Untyped); ok {
		return u.Equal(cur)
	}
	is, err := kind.Typed(next)
	was, err2 := kind.Typed(cur)
	return err == nil && err2 == nil && equality.Semantic.DeepEqual(is, was)
}
