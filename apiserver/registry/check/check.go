// Package check holds the checks that several kinds share; each returns what is
// wrong with one field.
package check

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Invalid is one Invalid for each message.
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

// UnsetOr lets value be empty or one of allowed.
func UnsetOr[S ~string](path *field.Path, value S, allowed ...S) field.ErrorList {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, slices.Sorted(slices.Values(allowed)))}
}

// NilOr lets value be nil or point to one of allowed.
func NilOr[S ~string](path *field.Path, value *S, allowed ...S) field.ErrorList {
	if value == nil || slices.Contains(allowed, *value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, *value, slices.Sorted(slices.Values(allowed)))}
}

// Required requires a text that is not empty.
func Required(path *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// Named requires a text that check finds nothing wrong with.
func Named(path *field.Path, value string, check func(string) []string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return Invalid(path, value, check(value))
}

// UnsetOrNamed checks value unless it is empty.
func UnsetOrNamed(path *field.Path, value string, check func(string) []string) field.ErrorList {
	if value == "" {
		return nil
	}
	return Invalid(path, value, check(value))
}

// NilOrID checks a user or group ID if there is one.
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

// NilOrNonNegative checks a number if there is one.
func NilOrNonNegative[N ~int32 | ~int64](path *field.Path, value *N) field.ErrorList {
	if value == nil {
		return nil
	}
	return NonNegative(path, *value)
}

// Immutable requires a field to stay what it was.
func Immutable(path *field.Path, next, cur any) field.ErrorList {
	return apivalidation.ValidateImmutableField(next, cur, path)
}

// Subdomain checks a name that may be used as a DNS subdomain.
func Subdomain(name string) []string { return apivalidation.NameIsDNSSubdomain(name, false) }

// UnionMembers names the pointers that are set in a struct of alternatives, as
// JSON calls them, in the order of declaration.
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

// ChangedFields names the fields in which two structs of one type differ.
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

// Union requires exactly one of the alternatives in union to be set; what
// is how the message calls them.
func Union(path *field.Path, union any, what string) field.ErrorList {
	set := UnionMembers(union)
	if len(set) == 0 {
		return field.ErrorList{field.Required(path, "must specify a "+what)}
	}
	var errs field.ErrorList
	for _, extra := range set[1:] {
		errs = append(errs, field.Forbidden(path.Child(extra), "may not specify more than 1 "+what))
	}
	return errs
}

// TaintEffects are what a taint may do and a toleration may name.
func TaintEffects() []corev1.TaintEffect {
	return []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
}

// Finalizers wants each to name its owner's domain, or to be one of Kubernetes'
// own (upstream: core validation's ValidateObjectMeta, asked at creations).
func Finalizers(names []string, path *field.Path) field.ErrorList {
	own := []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}
	var errs field.ErrorList
	for i, name := range names {
		if !strings.Contains(name, "/") && !slices.Contains(own, name) {
			errs = append(errs, field.Invalid(path.Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}
