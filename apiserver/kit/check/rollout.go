package check

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// IntOrPercent requires a number that is not negative, or a percentage.
func IntOrPercent(path *field.Path, value *intstr.IntOrString) field.ErrorList {
	if value.Type == intstr.Int {
		return NonNegative(path, value.IntVal)
	}
	return Invalid(path, value.String(), validation.IsValidPercent(value.StrVal))
}

// AtMostAll requires a percentage of at most 100; numbers are valid.
func AtMostAll(path *field.Path, value *intstr.IntOrString) field.ErrorList {
	if percent, ok := percentOf(value); ok && percent > 100 {
		return field.ErrorList{field.Invalid(path, value.String(), "must not be greater than 100%")}
	}
	return nil
}

// IsNothing reports whether the number or percentage is zero or invalid.
func IsNothing(value *intstr.IntOrString) bool {
	percent, ok := percentOf(value)
	if !ok {
		percent = value.IntValue()
	}
	return percent == 0
}

func percentOf(value *intstr.IntOrString) (int, bool) {
	if value.Type != intstr.String || len(validation.IsValidPercent(value.StrVal)) > 0 {
		return 0, false
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%"))
	return percent, err == nil
}

// Count is one number of a status, with the name of its field.
type Count struct {
	Name  string
	Value int64
}

// Counts requires counts that are not negative.
func Counts(path *field.Path, counts ...Count) field.ErrorList {
	var errs field.ErrorList
	for _, c := range counts {
		errs = append(errs, NonNegative(path.Child(c.Name), c.Value)...)
	}
	return errs
}

// AtMost requires counts of at most limit. of is the name of the limit.
func AtMost(path *field.Path, limit int32, of string, counts ...Count) field.ErrorList {
	var errs field.ErrorList
	for _, c := range counts {
		if c.Value > int64(limit) {
			errs = append(errs, field.Invalid(path.Child(c.Name), c.Value, "cannot be greater than "+of))
		}
	}
	return errs
}

// NonDecreasing requires a counter that is not negative and does not decrease. nil is zero.
func NonDecreasing(path *field.Path, next, cur *int32) field.ErrorList {
	errs := NilOrNonNegative(path, next)
	if cur != nil && (next == nil || *next < *cur) {
		var value int32
		if next != nil {
			value = *next
		}
		errs = append(errs, field.Invalid(path, value, "cannot be decremented"))
	}
	return errs
}

// NameWarnings returns a warning if an object's name is not suited for the names of its pods.
func NameWarnings(name string) []string {
	messages := validation.IsDNS1123Label(name)
	if len(messages) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in "+
		"surprising behavior; a DNS label is recommended: %v", messages)}
}
