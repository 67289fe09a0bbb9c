package dra

import (
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/registry/kind"
)

func validateSlice(next, cur kind.Object, _ string) (errs field.ErrorList) {
	spec, at := &next.(*slice).Spec, field.NewPath("spec")
	errs = append(errs, driverName(spec.Driver, at.Child("driver"))...)
	errs = append(errs, poolName(spec.Pool.Name, at.Child("pool", "name"))...)
	if n := spec.Pool.ResourceSliceCount; n <= 0 {
		errs = append(errs, field.Invalid(at.Child("pool", "resourceSliceCount"), n, "must be greater than zero"))
	}
	errs = slices.Concat(errs, check.NonNegative(at.Child("pool", "generation"), spec.Pool.Generation),
		placeErrors(spec, at), deviceErrors(spec, at))
	if cur == nil {
		return errs
	}
	old := &cur.(*slice).Spec
	return slices.Concat(errs,
		check.Immutable(at.Child("driver"), spec.Driver, old.Driver),
		check.Immutable(at.Child("pool", "name"), spec.Pool.Name, old.Pool.Name),
		check.Immutable(at.Child("nodeName"), spec.NodeName, old.NodeName))
}

// placeErrors requires exactly one field that selects the nodes of the devices.
func placeErrors(spec *resourcev1.ResourceSliceSpec, at *field.Path) (errs field.ErrorList) {
	var set []string
	if spec.NodeName != nil {
		set = append(set, "`nodeName`")
		errs = append(errs, check.Named(at.Child("nodeName"), *spec.NodeName, check.Subdomain)...)
	}
	if spec.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		if len(spec.NodeSelector.NodeSelectorTerms) != 1 { // the scheduler combines the terms of several slices
			errs = append(errs, field.Invalid(at.Child("nodeSelector", "nodeSelectorTerms"),
				spec.NodeSelector.NodeSelectorTerms, "must have exactly one node selector term"))
		}
	}
	for name, flag := range map[string]*bool{"allNodes": spec.AllNodes,
		"perDeviceNodeSelection": spec.PerDeviceNodeSelection} {
		if flag == nil {
			continue
		}
		if !*flag {
			errs = append(errs, field.Invalid(at.Child(name), *flag, "must be either unset or set to true"))
		} else {
			set = append(set, "`"+name+"`")
		}
	}
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	switch {
	case len(set) == 0:
		errs = append(errs, field.Required(at, one))
	case len(set) > 1:
		errs = append(errs,
			field.Invalid(at, strings.Join(sets.List(sets.New(set...)), ", "), one+", but multiple fields are set"))
	}
	return errs
}

func deviceErrors(spec *resourcev1.ResourceSliceSpec, at *field.Path) (errs field.ErrorList) {
	limit := resourcev1.ResourceSliceMaxDevices
	names := sets.New[string]()
	for i := range spec.Devices {
		d, path := &spec.Devices[i], at.Child("devices").Index(i)
		if len(d.Taints)+len(d.ConsumesCounters) > 0 {
			limit = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
		}
		errs = append(errs, check.Named(path.Child("name"), d.Name, validation.IsDNS1123Label)...)
		if names.Has(d.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), d.Name))
		}
		names.Insert(d.Name)
		errs = append(errs, propertyErrors(d, path)...)
		errs = append(errs, atMost(len(d.Taints), resourcev1.DeviceTaintsMaxLength, path.Child("taints"))...)
		for j := range d.Taints {
			errs = append(errs, taintError(&d.Taints[j], path.Child("taints").Index(j))...)
		}
		errs = append(errs, bindingErrors(d.BindingConditions, d.BindingFailureConditions, path)...)
	}
	errs = append(errs, atMost(len(spec.Devices), limit, at.Child("devices"))...)
	return append(errs, counterErrors(spec, at)...)
}

// propertyErrors checks the attributes and capacities of a device.
func propertyErrors(d *resourcev1.Device, at *field.Path) (errs field.ErrorList) {
	for name, value := range d.Attributes {
		path := at.Child("attributes").Key(string(name))
		errs = append(errs, qualified(string(name), path)...)
		errs = append(errs, attributeErrors(&value, path)...)
	}
	for name, capacity := range d.Capacity {
		path := at.Child("capacity").Key(string(name))
		errs = append(errs, qualified(string(name), path)...)
		errs = append(errs, quantityErrors(capacity.Value, path.Child("value"))...)
	}
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs = append(errs, field.Invalid(at, n, "the total number of attributes and capacities must not exceed 32"))
	}
	return errs
}

func attributeErrors(a *resourcev1.DeviceAttribute, at *field.Path) (errs field.ErrorList) {
	count := 0
	for _, set := range []bool{a.IntValue != nil, a.BoolValue != nil, a.StringValue != nil, a.VersionValue != nil,
		a.IntValues != nil, a.BoolValues != nil, a.StringValues != nil, a.VersionValues != nil} {
		if set {
			count++
		}
	}
	if count != 1 {
		errs = append(errs, field.Invalid(at, a, "exactly one value must be specified"))
	}
	versions, texts := a.VersionValues, a.StringValues
	if a.VersionValue != nil {
		versions = append(versions[:len(versions):len(versions)], *a.VersionValue)
	}
	if a.StringValue != nil {
		texts = append(texts[:len(texts):len(texts)], *a.StringValue)
	}
	for _, v := range versions {
		if _, err := version.ParseSemantic(v); err != nil || strings.HasPrefix(v, "v") {
			errs = append(errs, field.Invalid(at.Child("version"), v, "must be a string compatible with semver.org spec 2.0.0"))
		}
	}
	for _, v := range append(texts, versions...) {
		if len(v) > resourcev1.DeviceAttributeMaxValueLength {
			errs = append(errs, field.TooLong(at, "", resourcev1.DeviceAttributeMaxValueLength))
		}
	}
	return errs
}

func taintError(t *resourcev1.DeviceTaint, at *field.Path) (errs field.ErrorList) {
	errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
	errs = append(errs, check.Invalid(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
	return append(errs, check.OneOf(at.Child("effect"), t.Effect, resourcev1.DeviceTaintEffectNoExecute,
		resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)...)
}

// bindingErrors checks the conditions that the scheduler waits for before it binds a pod to the device.
func bindingErrors(wait, fail []string, at *field.Path) (errs field.ErrorList) {
	const required = " are required to use "
	waits, fails := at.Child("bindingConditions"), at.Child("bindingFailureConditions")
	errs = append(errs, atMost(len(wait), resourcev1.BindingConditionsMaxSize, waits)...)
	errs = append(errs, atMost(len(fail), resourcev1.BindingFailureConditionsMaxSize, fails)...)
	seen := sets.New[string]()
	for i, name := range slices.Concat(wait, fail) {
		path := waits.Index(i)
		if i >= len(wait) {
			path = fails.Index(i - len(wait))
		}
		errs = append(errs, metavalidation.ValidateLabelName(name, path)...)
		switch {
		case !seen.Has(name):
		case i >= len(wait) && slices.Contains(wait, name):
			errs = append(errs, field.Invalid(path, name, "bindingFailureConditions must not overlap with bindingConditions"))
		default:
			errs = append(errs, field.Duplicate(path, name))
		}
		seen.Insert(name)
	}
	switch {
	case len(wait) == 0 && len(fail) > 0:
		errs = append(errs, field.Invalid(waits, wait, "bindingConditions"+required+"bindingFailureConditions"))
	case len(fail) == 0 && len(wait) > 0:
		errs = append(errs, field.Invalid(fails, fail, "bindingFailureConditions"+required+"bindingConditions"))
	}
	return errs
}

// counterErrors checks the counters that devices share.
func counterErrors(spec *resourcev1.ResourceSliceSpec, at *field.Path) (errs field.ErrorList) {
	shared := at.Child("sharedCounters")
	if len(spec.SharedCounters) > 0 && len(spec.Devices) > 0 {
		errs = append(errs, field.Invalid(at, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	errs = append(errs, atMost(len(spec.SharedCounters), resourcev1.ResourceSliceMaxCounterSets, shared)...)
	for i, set := range spec.SharedCounters {
		errs = append(errs, check.Named(shared.Index(i).Child("name"), set.Name, validation.IsDNS1123Label)...)
		errs = append(errs, counterValueErrors(set.Counters, shared.Index(i).Child("counters"))...)
	}
	for i := range spec.Devices {
		for j, c := range spec.Devices[i].ConsumesCounters {
			path := at.Child("devices").Index(i).Child("consumesCounters").Index(j)
			errs = append(errs, check.Named(path.Child("counterSet"), c.CounterSet, validation.IsDNS1123Label)...)
			errs = append(errs, counterValueErrors(c.Counters, path.Child("counters"))...)
		}
	}
	return errs
}

func counterValueErrors(all map[string]resourcev1.Counter, at *field.Path) (errs field.ErrorList) {
	if len(all) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	errs = append(errs, atMost(len(all), resourcev1.ResourceSliceMaxCountersPerCounterSet, at)...)
	for name, c := range all {
		errs = append(errs, check.Invalid(at.Key(name), name, validation.IsDNS1123Label(name))...)
		errs = append(errs, quantityErrors(c.Value, at.Key(name).Child("value"))...)
	}
	return errs
}
