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
				limitDefault(&obj.(*corev1.LimitRange).Spec.Limits[i])
			}
		},
		Validate: limitRangeValidate,
		Columns:  []table.Column{table.Name(), table.CreatedAt()},
	}
}

// limitDefault sets the defaults of a limit for containers: default from max, defaultRequest from default or min.
func limitDefault(l *corev1.LimitRangeItem) {
	if l.Type != corev1.LimitTypeContainer {
		return
	}
	l.Default = fill(l.Default, l.Max)
	l.DefaultRequest = fill(fill(l.DefaultRequest, l.Default), l.Min)
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
		at := field.NewPath("spec", "limits").Index(i)
		errs = append(errs, limitType(limits[i].Type, at.Child("type"))...)
		if seen[limits[i].Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), limits[i].Type))
		}
		seen[limits[i].Type] = true
		errs = append(errs, limitErrors(&limits[i], at)...)
	}
	return errs
}

func limitType(t corev1.LimitType, at *field.Path) field.ErrorList {
	if errs := check.Invalid(at, t, validation.IsQualifiedName(string(t))); len(errs) > 0 {
		return errs
	}
	switch t {
	case corev1.LimitTypeContainer, corev1.LimitTypePod, corev1.LimitTypePersistentVolumeClaim:
		return nil
	}
	if strings.Contains(string(t), "/") {
		return nil
	}
	return field.ErrorList{field.Invalid(at, t, "must be a standard limit type or fully qualified")}
}

// amounts is a resource list of a limit, with the name of its field.
type amounts struct {
	name string
	of   corev1.ResourceList
}

func limitErrors(l *corev1.LimitRangeItem, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	lists := []amounts{{"max", l.Max}, {"min", l.Min}, {"default", l.Default}, {"defaultRequest", l.DefaultRequest},
		{"maxLimitRequestRatio", l.MaxLimitRequestRatio}}
	names := map[corev1.ResourceName]bool{}
	for _, list := range lists {
		if l.Type == corev1.LimitTypePod && strings.HasPrefix(list.name, "default") {
			if len(list.of) > 0 {
				errs = append(errs, field.Forbidden(at.Child(list.name), "may not be specified when `type` is 'Pod'"))
			}
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(list.of)) {
			names[name] = true
			errs = append(errs, limitName(l.Type, name, at.Child(list.name).Key(string(name)))...)
		}
	}
	if l.Type == corev1.LimitTypePersistentVolumeClaim && !has(l.Min, corev1.ResourceStorage) &&
		!has(l.Max, corev1.ResourceStorage) {
		errs = append(errs,
			field.Required(at.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
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

func limitName(t corev1.LimitType, name corev1.ResourceName, at *field.Path) field.ErrorList {
	if t == corev1.LimitTypePod || t == corev1.LimitTypeContainer {
		return check.ContainerResourceName(at, name)
	}
	return resourceName(name, at)
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
		if a && b && low.Cmp(high) > 0 {
			errs = append(errs,
				field.Invalid(rule.at, text(rule.value[name]), fmt.Sprintf(rule.words, low.String(), high.String())))
		}
	}
	limit, request := l.Default[name], l.DefaultRequest[name]
	if !check.Overcommittable(name) && has(l.Default, name) && has(l.DefaultRequest, name) && limit.Cmp(request) != 0 {
		errs = append(errs,
			field.Invalid(key("defaultRequest"), request.String(),
				fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(),
					name)))
	}
	return errs
}

func text(amount resource.Quantity) string { return amount.String() }

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
	if !a || !b {
		return errs
	}
	if bound := most.AsApproximateFloat64() / least.AsApproximateFloat64(); ratio.AsApproximateFloat64() > bound {
		errs = append(errs,
			field.Invalid(at, ratio.String(), fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), bound)))
	}
	return errs
}
