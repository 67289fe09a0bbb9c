package registry

import (
	"reflect"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// This file holds the checks that several kinds share; each returns what is
// wrong with one field.

// fieldInvalid is one Invalid for each message.
func fieldInvalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

// fieldOneOf requires value to be one of allowed.
func fieldOneOf[S ~string](path *field.Path, value S, allowed ...S) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return fieldUnsetOr(path, value, allowed...)
}

// fieldUnsetOr lets value be empty or one of allowed.
func fieldUnsetOr[S ~string](path *field.Path, value S, allowed ...S) field.ErrorList {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, slices.Sorted(slices.Values(allowed)))}
}

// fieldNilOr lets value be nil or point to one of allowed.
func fieldNilOr[S ~string](path *field.Path, value *S, allowed ...S) field.ErrorList {
	if value == nil || slices.Contains(allowed, *value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, *value, slices.Sorted(slices.Values(allowed)))}
}

// fieldRequired requires a text that is not empty.
func fieldRequired(path *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// fieldNamed requires a text that check finds nothing wrong with.
func fieldNamed(path *field.Path, value string, check func(string) []string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return fieldInvalid(path, value, check(value))
}

// fieldUnsetOrNamed checks value unless it is empty.
func fieldUnsetOrNamed(path *field.Path, value string, check func(string) []string) field.ErrorList {
	if value == "" {
		return nil
	}
	return fieldInvalid(path, value, check(value))
}

// fieldNilOrID checks a user or group ID if there is one.
func fieldNilOrID(path *field.Path, id *int64, check func(int64) []string) field.ErrorList {
	if id == nil {
		return nil
	}
	return fieldInvalid(path, *id, check(*id))
}

func fieldNonNegative[N ~int32 | ~int64](path *field.Path, value N) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(int64(value), path)
}

func fieldNilOrNonNegative[N ~int32 | ~int64](path *field.Path, value *N) field.ErrorList {
	if value == nil {
		return nil
	}
	return fieldNonNegative(path, *value)
}

func fieldImmutable(path *field.Path, next, cur any) field.ErrorList {
	return apivalidation.ValidateImmutableField(next, cur, path)
}

// fieldSubdomain checks a name that may be used as a DNS subdomain.
func fieldSubdomain(name string) []string { return apivalidation.NameIsDNSSubdomain(name, false) }

// unionMembers names the pointers that are set in a struct of alternatives, as
// JSON calls them, in the order of declaration.
func unionMembers(union any) []string {
	var set []string
	v := reflect.ValueOf(union)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			set = append(set, jsonName(v.Type().Field(i)))
		}
	}
	return set
}

// changedFields names the fields in which two structs of one type differ.
func changedFields(next, cur any, equal func(a, b any) bool) []string {
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

// fieldUnion requires exactly one of the alternatives in union to be set; what
// is how the message calls them.
func fieldUnion(path *field.Path, union any, what string) field.ErrorList {
	set := unionMembers(union)
	if len(set) == 0 {
		return field.ErrorList{field.Required(path, "must specify a "+what)}
	}
	var errs field.ErrorList
	for _, extra := range set[1:] {
		errs = append(errs, field.Forbidden(path.Child(extra), "may not specify more than 1 "+what))
	}
	return errs
}
