// Package check contains validations that several kinds share. Each function returns the errors of
// one field.
package check

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Invalid returns one Invalid error for each message.
func Invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

// OneOf requires value to be one of allowed.
func OneOf[S ~string](path *field.Path, value S, allowed ...S) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return UnsetOr(path, value, allowed...)
}

// UnsetOr requires value to be empty or one of allowed.
func UnsetOr[S ~string](path *field.Path, value S, allowed ...S) field.ErrorList {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, slices.Sorted(slices.Values(allowed)))}
}

// NilOr requires value to be nil or to point to one of allowed.
func NilOr[S ~string](path *field.Path, value *S, allowed ...S) field.ErrorList {
	if value == nil || slices.Contains(allowed, *value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, *value, slices.Sorted(slices.Values(allowed)))}
}

// Required requires a value that is not empty.
func Required(path *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// Named requires a value for which check returns no errors.
func Named(path *field.Path, value string, check func(string) []string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return Invalid(path, value, check(value))
}

// UnsetOrNamed validates value unless it is empty.
func UnsetOrNamed(path *field.Path, value string, check func(string) []string) field.ErrorList {
	if value == "" {
		return nil
	}
	return Invalid(path, value, check(value))
}

// NilOrID validates a user or group ID if there is one.
func NilOrID(path *field.Path, id *int64, check func(int64) []string) field.ErrorList {
	if id == nil {
		return nil
	}
	return Invalid(path, *id, check(*id))
}

// NonNegative requires a number that is not negative.
func NonNegative[N ~int32 | ~int64](path *field.Path, value N) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(int64(value), path)
}

// NilOrNonNegative requires a number that is nil or not negative.
func NilOrNonNegative[N ~int32 | ~int64](path *field.Path, value *N) field.ErrorList {
	if value == nil {
		return nil
	}
	return NonNegative(path, *value)
}

// Immutable requires the field to be unchanged.
func Immutable(path *field.Path, next, cur any) field.ErrorList {
	return apivalidation.ValidateImmutableField(next, cur, path)
}

// Subdomain returns the errors of a name that must be a DNS subdomain.
func Subdomain(name string) []string { return apivalidation.NameIsDNSSubdomain(name, false) }

// maxDriverName is the longest name of a CSI driver (the CSI specification).
const maxDriverName = 63

// DriverName requires the name of a CSI driver: a domain name, in upper or lower case.
func DriverName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > maxDriverName {
		errs = append(errs, field.TooLong(path, name, maxDriverName))
	}
	return append(errs, Invalid(path, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

// UnionMembers returns the JSON names of the fields that are set in a union, in the order of
// declaration.
func UnionMembers(union any) []string {
	var set []string
	v := reflect.ValueOf(union)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			set = append(set, jsonName(v.Type().Field(i)))
		}
	}
	return set
}

// ChangedFields returns the JSON names of the fields in which two structs of one type differ.
func ChangedFields(next, cur any, equal func(a, b any) bool) []string {
	var changed []string
	a, b := reflect.ValueOf(next), reflect.ValueOf(cur)
	for i := range a.NumField() {
		if !equal(a.Field(i).Interface(), b.Field(i).Interface()) {
			changed = append(changed, jsonName(a.Type().Field(i)))
		}
	}
	return changed
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// Union requires exactly one field of the union to be set. what describes the field in errors.
func Union(path *field.Path, union any, what string) field.ErrorList {
	return One(path, UnionMembers(union), what)
}

// One requires set, the JSON names of the fields that are set, to contain exactly one. The errors are about all but the
// first.
func One(path *field.Path, set []string, what string) field.ErrorList {
	if len(set) == 0 {
		return field.ErrorList{field.Required(path, "must specify a "+what)}
	}
	var errs field.ErrorList
	for _, extra := range set[1:] {
		errs = append(errs, field.Forbidden(path.Child(extra), "may not specify more than 1 "+what))
	}
	return errs
}

// TaintEffects returns the effects of taints and tolerations.
func TaintEffects() []corev1.TaintEffect {
	return []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
		corev1.TaintEffectNoExecute}
}

// Finalizers requires each finalizer to have a domain, or to be one of Kubernetes' own (upstream: core validation's
// ValidateObjectMeta, at creations).
func Finalizers(names []string, path *field.Path) field.ErrorList {
	standard := []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents,
		metav1.FinalizerDeleteDependents}
	var errs field.ErrorList
	for i, name := range names {
		if !strings.Contains(name, "/") && !slices.Contains(standard, name) {
			errs = append(errs,
				field.Invalid(path.Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// Unique requires a value that is not in seen, and adds it to seen.
func Unique[K comparable](path *field.Path, value K, seen map[K]bool) field.ErrorList {
	if seen[value] {
		return field.ErrorList{field.Duplicate(path, value)}
	}
	seen[value] = true
	return nil
}

// LabelSelector requires a valid selector; nil is valid.
func LabelSelector(path *field.Path, selector *metav1.LabelSelector) field.ErrorList {
	return metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, path)
}

// Field is the name of a field, and whether it is set.
type Field = struct {
	Name string
	Set  bool
}

// Forbidden returns an error for each field that is set.
func Forbidden(path *field.Path, detail string, fields []Field) field.ErrorList {
	var errs field.ErrorList
	for _, f := range fields {
		if f.Set {
			errs = append(errs, field.Forbidden(path.Child(f.Name), detail))
		}
	}
	return errs
}
