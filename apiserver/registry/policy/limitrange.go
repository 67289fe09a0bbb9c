package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

func limitRangeResource() kind.Resource {
	return kind.Resource{
		GVR:        client.LimitRanges,
		Kind:       "LimitRange",
		Namespaced: true,
		ShortNames: []string{"limits"},
		New:        func() kind.Object { return new(corev1.LimitRange) },
		Default: func(obj kind.Object) {
			for i := range obj.(*corev1.LimitRange).Spec.Limits {
				l := &obj.(*corev1.LimitRange).Spec.Limits[i]
				if l.Type == corev1.LimitTypeContainer { // default from max, defaultRequest from default or min
					l.Default = fill(l.Default, l.Max)
					l.DefaultRequest = fill(fill(l.DefaultRequest, l.Default), l.Min)
				}
			}
		},
		Validate: limitRangeValidate,
		Columns:  []table.Column{table.Name(), table.CreatedAt()},
	}
}

// fill adds to amounts the resources that only from has.
func fill(amounts, from corev1.ResourceList) corev1.ResourceList {
	if amounts == nil {
		amounts = corev1.ResourceList{}
	}
	for name, amount := range from {
		if _, ok := amounts[name]; !ok {
			amounts[name] = amount.DeepCopy()
		}
	}
	return amounts
}

func limitRangeValidate(next, _ kind.Object, _ string) field.ErrorList {
	var errs field.ErrorList
	limits, seen := next.(*corev1.LimitRange).Spec.Limits, map[corev1.LimitType]bool{}
	for i := range limits {
		at, t := field.NewPath("spec", "limits").Index(i), limits[i].Type
		standard := t == corev1.LimitTypeContainer || t == corev1.LimitTypePod || t == corev1.LimitTypePersistentVolumeClaim
		if bad := check.Invalid(at.Child("type"), t, validation.IsQualifiedName(string(t))); len(bad) > 0 {
			errs = append(errs, bad...)
		} else if !standard && !strings.Contains(string(t), "/") {
			errs = append(errs, field.Invalid(at.Child("type"), t, "must be a standard limit type or fully qualified"))
		}
		errs = append(errs, check.Unique(at.Child("type"), t, seen)...)
		errs = append(errs, limitErrors(&limits[i], at)...)
	}
	return errs
}

func limitErrors(l *corev1.LimitRangeItem, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[corev1.ResourceName]bool{}
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"max", l.Max}, {"min", l.Min}, {"default", l.Default}, {"defaultRequest", l.DefaultRequest},
		{"maxLimitRequestRatio", l.MaxLimitRequestRatio}} {
		if l.Type == corev1.LimitTypePod && strings.HasPrefix(list.name, "default") {
			if len(list.of) > 0 {
				errs = append(errs, field.Forbidden(at.Child(list.name), "may not be specified when `type` is 'Pod'"))
			}
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(list.of)) {
			names[name] = true
			key := at.Child(list.name).Key(string(name))
			if l.Type == corev1.LimitTypePod || l.Type == corev1.LimitTypeContainer {
				errs = append(errs, check.ContainerResourceName(key, name)...)
			} else {
				errs = append(errs, resourceName(name, key)...)
			}
		}
	}
	if l.Type == corev1.LimitTypePersistentVolumeClaim && !has(l.Min, corev1.ResourceStorage) &&
		!has(l.Max, corev1.ResourceStorage) {
		errs = append(errs, field.Required(at.Child("limits"),
			"either minimum or maximum storage value is required, but neither was provided"))
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		errs = append(errs, limitOrder(l, name, at)...)
		errs = append(errs, limitRatio(l, name, at.Child("maxLimitRequestRatio").Key(string(name)))...)
	}
	return errs
}

func has(list corev1.ResourceList, name corev1.ResourceName) bool {
	_, ok := list[name]
	return ok
}

// limitOrder checks that min, defaultRequest, default and max are in ascending order, and that both defaults are equal
// if the resource cannot be overcommitted.
func limitOrder(l *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path) field.ErrorList {
	key := func(list string) *field.Path { return at.Child(list).Key(string(name)) }
	var errs field.ErrorList
	for _, rule := range []struct {
		low, high corev1.ResourceList
		words     string
		at        *field.Path
		value     corev1.ResourceList
	}{
		{l.Min, l.Max, "min value %s is greater than max value %s", key("min"), l.Min},
		{l.Min, l.DefaultRequest, "min value %s is greater than default request value %s", key("defaultRequest"),
			l.DefaultRequest},
		{l.DefaultRequest, l.Max, "default request value %s is greater than max value %s", key("defaultRequest"),
			l.DefaultRequest},
		{l.DefaultRequest, l.Default, "default request value %s is greater than default limit value %s",
			key("defaultRequest"), l.DefaultRequest},
		{l.Min, l.Default, "min value %s is greater than default value %s", key("default"), l.Min},
		{l.Default, l.Max, "default value %s is greater than max value %s", key("default"), l.Max},
	} {
		low, a := rule.low[name]
		high, b := rule.high[name]
		if value := rule.value[name]; a && b && low.Cmp(high) > 0 {
			errs = append(errs, field.Invalid(rule.at, value.String(), fmt.Sprintf(rule.words, low.String(), high.String())))
		}
	}
	limit, request := l.Default[name], l.DefaultRequest[name]
	if !check.Overcommittable(name) && has(l.Default, name) && has(l.DefaultRequest, name) && limit.Cmp(request) != 0 {
		errs = append(errs, field.Invalid(key("defaultRequest"), request.String(), fmt.Sprintf(
			"default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name)))
	}
	return errs
}

// limitRatio checks that the ratio is at least 1 and at most max/min.
func limitRatio(l *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path) field.ErrorList {
	ratio, ok := l.MaxLimitRequestRatio[name]
	if !ok {
		return nil
	}
	var errs field.ErrorList
	if ratio.Cmp(resource.MustParse("1")) < 0 {
		errs = append(errs, field.Invalid(at, ratio.String(), fmt.Sprintf("ratio %s is less than 1", ratio.String())))
	}
	least, a := l.Min[name]
	most, b := l.Max[name]
	bound := most.AsApproximateFloat64() / least.AsApproximateFloat64()
	if a && b && ratio.AsApproximateFloat64() > bound {
		errs = append(errs,
			field.Invalid(at, ratio.String(), fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), bound)))
	}
	return errs
}
