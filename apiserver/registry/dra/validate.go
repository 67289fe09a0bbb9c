package dra

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/registry/kind"
)

func validateClass(next, _ kind.Object, _ string) (errs field.ErrorList) {
	spec, at := &next.(*deviceClass).Spec, field.NewPath("spec")
	errs = append(errs, selectorErrors(spec.Selectors, at.Child("selectors"))...)
	errs = append(errs, atMost(len(spec.Config), resourcev1.DeviceConfigMaxSize, at.Child("config"))...)
	for i := range spec.Config {
		errs = append(errs, configurationErrors(&spec.Config[i].DeviceConfiguration, at.Child("config").Index(i))...)
	}
	if name := spec.ExtendedResourceName; name != nil {
		errs = append(errs, check.ContainerResourceName(at.Child("extendedResourceName"), corev1.ResourceName(*name))...)
		if !strings.Contains(*name, "/") {
			errs = append(errs, field.Invalid(at.Child("extendedResourceName"), *name, "must be an extended resource name"))
		}
	}
	return errs
}

func validateClaim(next, cur kind.Object, subresource string) field.ErrorList {
	is := next.(*claim)
	if subresource == "status" {
		return statusErrors(is, cur.(*claim))
	}
	errs := specErrors(&is.Spec, field.NewPath("spec"))
	if cur != nil {
		errs = append(errs, check.Immutable(field.NewPath("spec"), is.Spec, cur.(*claim).Spec)...)
	}
	return errs
}

func validateTemplate(next, cur kind.Object, _ string) field.ErrorList {
	is := next.(*template)
	errs := specErrors(&is.Spec.Spec, field.NewPath("spec", "spec"))
	if cur != nil {
		errs = append(errs, check.Immutable(field.NewPath("spec"), is.Spec, cur.(*template).Spec)...)
	}
	return errs
}

// specErrors checks the requests of a claim, and the references to them.
func specErrors(spec *resourcev1.ResourceClaimSpec, at *field.Path) (errs field.ErrorList) {
	at, d := at.Child("devices"), &spec.Devices
	names := sets.New[string]()
	if len(d.Requests) == 0 {
		errs = append(errs, field.Required(at.Child("requests"), ""))
	}
	errs = append(errs, atMost(len(d.Requests), resourcev1.DeviceRequestsMaxSize, at.Child("requests"))...)
	for i := range d.Requests {
		r, path := &d.Requests[i], at.Child("requests").Index(i)
		if names.Has(r.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), r.Name))
		}
		names.Insert(r.Name)
		errs = append(errs, requestErrors(r, path, names)...)
	}
	errs = append(errs, atMost(len(d.Constraints), resourcev1.DeviceConstraintsMaxSize, at.Child("constraints"))...)
	for i := range d.Constraints {
		c, path := &d.Constraints[i], at.Child("constraints").Index(i)
		errs = append(errs, referenceErrors(c.Requests, path.Child("requests"), names)...)
		switch {
		case c.MatchAttribute != nil:
			errs = append(errs, fullyQualified(string(*c.MatchAttribute), path.Child("matchAttribute"))...)
		case c.DistinctAttribute != nil:
			errs = append(errs, fullyQualified(string(*c.DistinctAttribute), path.Child("distinctAttribute"))...)
		default:
			errs = append(errs, field.Required(path,
				`exactly one of: "matchAttribute" is required, but no constraint specified`))
		}
	}
	errs = append(errs, atMost(len(d.Config), resourcev1.DeviceConfigMaxSize, at.Child("config"))...)
	for i := range d.Config {
		path := at.Child("config").Index(i)
		errs = append(errs, referenceErrors(d.Config[i].Requests, path.Child("requests"), names)...)
		errs = append(errs, configurationErrors(&d.Config[i].DeviceConfiguration, path)...)
	}
	return errs
}

// requestErrors checks a request and adds the names of its alternatives to names.
func requestErrors(r *resourcev1.DeviceRequest, at *field.Path, names sets.Set[string]) (errs field.ErrorList) {
	errs = append(errs, check.Named(at.Child("name"), r.Name, validation.IsDNS1123Label)...)
	switch set := len(r.FirstAvailable) > 0; {
	case r.Exactly == nil && !set:
		return append(errs, field.Required(at, "exactly one of `exactly` or `firstAvailable` is required"))
	case r.Exactly != nil && set:
		return append(errs,
			field.Invalid(at, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	}
	if e := r.Exactly; e != nil {
		return append(errs, deviceRequirements{e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count,
			e.Tolerations}.errors(at.Child("exactly"))...)
	}
	errs = append(errs,
		atMost(len(r.FirstAvailable), resourcev1.FirstAvailableDeviceRequestMaxSize, at.Child("firstAvailable"))...)
	for i := range r.FirstAvailable {
		sub, path := &r.FirstAvailable[i], at.Child("firstAvailable").Index(i)
		errs = append(errs, check.Named(path.Child("name"), sub.Name, validation.IsDNS1123Label)...)
		full := r.Name + "/" + sub.Name
		if names.Has(full) {
			errs = append(errs, field.Duplicate(path.Child("name"), sub.Name))
		}
		names.Insert(full)
		errs = append(errs, deviceRequirements{sub.DeviceClassName, sub.Selectors, sub.AllocationMode, sub.Count,
			sub.Tolerations}.errors(path)...)
	}
	return errs
}

// deviceRequirements contains the fields that a request and an alternative have in common.
type deviceRequirements struct {
	class       string
	selectors   []resourcev1.DeviceSelector
	mode        resourcev1.DeviceAllocationMode
	count       int64
	tolerations []resourcev1.DeviceToleration
}

func (w deviceRequirements) errors(at *field.Path) (errs field.ErrorList) {
	errs = append(errs, check.Named(at.Child("deviceClassName"), w.class, check.Subdomain)...)
	errs = append(errs, selectorErrors(w.selectors, at.Child("selectors"))...)
	errs = append(errs, check.OneOf(at.Child("allocationMode"), w.mode, resourcev1.DeviceAllocationModeAll,
		resourcev1.DeviceAllocationModeExactCount)...)
	switch {
	case w.mode == resourcev1.DeviceAllocationModeAll && w.count != 0:
		errs = append(errs, field.Invalid(at.Child("count"), w.count, "must not be specified when allocationMode is 'All'"))
	case w.mode == resourcev1.DeviceAllocationModeExactCount && w.count <= 0:
		errs = append(errs, field.Invalid(at.Child("count"), w.count, "must be greater than zero"))
	}
	errs = append(errs, atMost(len(w.tolerations), resourcev1.DeviceTolerationsMaxLength, at.Child("tolerations"))...)
	for i := range w.tolerations {
		errs = append(errs, tolerationErrors(&w.tolerations[i], at.Child("tolerations").Index(i))...)
	}
	return errs
}

func tolerationErrors(t *resourcev1.DeviceToleration, at *field.Path) (errs field.ErrorList) {
	if t.Key != "" {
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
	}
	errs = append(errs, check.OneOf(at.Child("operator"), t.Operator, resourcev1.DeviceTolerationOpEqual,
		resourcev1.DeviceTolerationOpExists)...)
	switch {
	case t.Operator == resourcev1.DeviceTolerationOpExists && t.Value != "":
		errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be empty for operator `Exists`"))
	case t.Operator == resourcev1.DeviceTolerationOpEqual && t.Key == "":
		errs = append(errs, field.Required(at.Child("key"), ""))
	}
	errs = append(errs, check.Invalid(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
	return append(errs, check.UnsetOr(at.Child("effect"), t.Effect, resourcev1.DeviceTaintEffectNoExecute,
		resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)...)
}

// referenceErrors checks references to requests, by name or as request/alternative.
func referenceErrors(requests []string, at *field.Path, names sets.Set[string]) (errs field.ErrorList) {
	errs = append(errs, atMost(len(requests), resourcev1.DeviceRequestsMaxSize, at)...)
	seen := sets.New[string]()
	for i, name := range requests {
		if seen.Has(name) {
			errs = append(errs, field.Duplicate(at.Index(i), name))
		} else {
			errs = append(errs, referenceError(name, at.Index(i), names)...)
		}
		seen.Insert(name)
	}
	return errs
}

func referenceError(name string, at *field.Path, names sets.Set[string]) field.ErrorList {
	if names.Has(name) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name,
		"must be the name of a request in the claim or the name of a request and a subrequest separated by '/'")}
}

func configurationErrors(c *resourcev1.DeviceConfiguration, at *field.Path) (errs field.ErrorList) {
	if c.Opaque == nil {
		return field.ErrorList{field.Required(at, "exactly one of: `opaque` is required, but no configuration specified")}
	}
	at = at.Child("opaque")
	errs = append(errs, driverName(c.Opaque.Driver, at.Child("driver"))...)
	return append(errs,
		rawObject(c.Opaque.Parameters.Raw, at.Child("parameters"), resourcev1.OpaqueParametersMaxLength)...)
}

// rawObject checks that a value is a JSON object of a limited size.
func rawObject(raw []byte, at *field.Path, limit int) field.ErrorList {
	var object map[string]any
	switch {
	case len(raw) == 0:
		return field.ErrorList{field.Required(at, "")}
	case len(raw) > limit:
		return field.ErrorList{field.TooLong(at, "", limit)}
	case json.Unmarshal(raw, &object) != nil:
		return field.ErrorList{field.Invalid(at, "<value omitted>", "must be a valid JSON object")}
	case object == nil:
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}

func driverName(name string, at *field.Path) field.ErrorList {
	if len(name) > resourcev1.DriverNameMaxLength {
		return field.ErrorList{field.TooLong(at, "", resourcev1.DriverNameMaxLength)}
	}
	return check.Named(at, name, validation.IsDNS1123Subdomain)
}

func selectorErrors(all []resourcev1.DeviceSelector, at *field.Path) (errs field.ErrorList) {
	errs = append(errs, atMost(len(all), resourcev1.DeviceSelectorsMaxSize, at)...)
	for i, s := range all {
		path := at.Index(i)
		if s.CEL == nil {
			errs = append(errs, field.Required(path.Child("cel"), ""))
			continue
		}
		errs = append(errs, expression(s.CEL.Expression, path.Child("cel", "expression"))...)
	}
	return errs
}

func atMost(n, limit int, at *field.Path) field.ErrorList {
	if n > limit {
		return field.ErrorList{field.TooMany(at, n, limit)}
	}
	return nil
}

// qualified checks the name of an attribute or a capacity, with or without a domain.
func qualified(name string, at *field.Path) field.ErrorList {
	domain, id, full := strings.Cut(name, "/")
	switch {
	case name == "":
		return field.ErrorList{field.Required(at, "name required")}
	case !full:
		return identifier(name, at)
	case domain == "":
		return field.ErrorList{field.Required(at, "the domain must not be empty")}
	case id == "":
		return field.ErrorList{field.Required(at, "the name must not be empty")}
	}
	if len(domain) > resourcev1.DeviceMaxDomainLength {
		return field.ErrorList{field.TooLong(at, "", resourcev1.DeviceMaxDomainLength)}
	}
	return append(check.Invalid(at, domain, validation.IsDNS1123Subdomain(domain)), identifier(id, at)...)
}

func fullyQualified(name string, at *field.Path) field.ErrorList {
	errs := qualified(name, at)
	if len(errs) == 0 && !strings.Contains(name, "/") {
		errs = append(errs, field.Invalid(at, name, "must include a domain"))
	}
	return errs
}

func identifier(id string, at *field.Path) field.ErrorList {
	if len(id) > resourcev1.DeviceMaxIDLength {
		return field.ErrorList{field.TooLong(at, "", resourcev1.DeviceMaxIDLength)}
	}
	return check.Invalid(at, id, validation.IsCIdentifier(id))
}

// statusErrors checks the allocation, the reservations and the drivers' device status.
func statusErrors(is, was *claim) (errs field.ErrorList) {
	at, status := field.NewPath("status"), &is.Status
	names := sets.New[string]()
	for i := range is.Spec.Devices.Requests {
		r := &is.Spec.Devices.Requests[i]
		names.Insert(r.Name)
		for _, sub := range r.FirstAvailable {
			names.Insert(r.Name + "/" + sub.Name)
		}
	}
	devices := sets.New[string]()
	if a := status.Allocation; a != nil {
		errs = append(errs, allocationErrors(a, at.Child("allocation"), names, devices)...)
		if old := was.Status.Allocation; old != nil && !equality.Semantic.DeepEqual(a, old) {
			errs = append(errs, field.Invalid(at.Child("allocation"), "<value omitted>", "field is immutable"))
		}
	}
	errs = append(errs, reservationErrors(status, &was.Status, is.DeletionTimestamp != nil, at.Child("reservedFor"))...)
	for i := range status.Devices {
		d, path := &status.Devices[i], at.Child("devices").Index(i)
		id := d.Driver + "/" + d.Pool + "/" + d.Device
		if !devices.Has(id) {
			errs = append(errs, field.Invalid(path, id, "must be an allocated device in the claim"))
		}
		errs = append(errs,
			atMost(len(d.Conditions), resourcev1.AllocatedDeviceStatusMaxConditions, path.Child("conditions"))...)
		errs = append(errs, metavalidation.ValidateConditions(d.Conditions, path.Child("conditions"))...)
		if d.Data != nil && len(d.Data.Raw) > 0 {
			errs = append(errs, rawObject(d.Data.Raw, path.Child("data"), resourcev1.AllocatedDeviceStatusDataMaxLength)...)
		}
	}
	return errs
}

func allocationErrors(a *resourcev1.AllocationResult, at *field.Path, names,
	devices sets.Set[string]) (errs field.ErrorList) {
	results := at.Child("devices", "results")
	errs = append(errs, atMost(len(a.Devices.Results), resourcev1.AllocationResultsMaxSize, results)...)
	for i := range a.Devices.Results {
		r, path := &a.Devices.Results[i], results.Index(i)
		errs = append(errs, referenceError(r.Request, path.Child("request"), names)...)
		errs = append(errs, driverName(r.Driver, path.Child("driver"))...)
		errs = append(errs, poolName(r.Pool, path.Child("pool"))...)
		errs = append(errs, check.Named(path.Child("device"), r.Device, validation.IsDNS1123Label)...)
		errs = append(errs, bindingErrors(r.BindingConditions, r.BindingFailureConditions, path)...)
		devices.Insert(r.Driver + "/" + r.Pool + "/" + r.Device)
	}
	config := at.Child("devices", "config")
	errs = append(errs, atMost(len(a.Devices.Config), 2*resourcev1.DeviceConfigMaxSize, config)...)
	for i := range a.Devices.Config {
		c, path := &a.Devices.Config[i], config.Index(i)
		errs = append(errs, check.OneOf(path.Child("source"), c.Source, resourcev1.AllocationConfigSourceClaim,
			resourcev1.AllocationConfigSourceClass)...)
		errs = append(errs, referenceErrors(c.Requests, path.Child("requests"), names)...)
		errs = append(errs, configurationErrors(&c.DeviceConfiguration, path)...)
	}
	return errs
}

// reservationErrors checks reservations: only an allocated claim can be reserved, and a claim that is being deleted
// cannot get new reservations.
func reservationErrors(is, was *resourcev1.ResourceClaimStatus, deleting bool, at *field.Path) (errs field.ErrorList) {
	errs = append(errs, atMost(len(is.ReservedFor), resourcev1.ResourceClaimReservedForMaxSize, at)...)
	known := sets.New[string]()
	for i, r := range is.ReservedFor {
		path := at.Index(i)
		errs = append(errs, check.Required(path.Child("resource"), r.Resource)...)
		errs = append(errs, check.Required(path.Child("name"), r.Name)...)
		errs = append(errs, check.Required(path.Child("uid"), string(r.UID))...)
		if known.Has(string(r.UID)) {
			errs = append(errs, field.Duplicate(path.Child("uid"), r.UID))
		}
		known.Insert(string(r.UID))
	}
	old := sets.New[string]()
	for _, r := range was.ReservedFor {
		old.Insert(string(r.UID))
	}
	if len(is.ReservedFor) == 0 {
		return errs
	}
	if is.Allocation == nil {
		errs = append(errs, field.Forbidden(at, "may not be specified when `allocated` is not set"))
	} else if deleting && !old.IsSuperset(known) {
		errs = append(errs,
			field.Forbidden(at, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
	}
	return errs
}

// poolName checks a pool's name, which consists of DNS subdomains separated by slashes.
func poolName(name string, at *field.Path) (errs field.ErrorList) {
	switch {
	case name == "":
		return field.ErrorList{field.Required(at, "")}
	case len(name) > resourcev1.PoolNameMaxLength:
		return field.ErrorList{field.TooLong(at, "", resourcev1.PoolNameMaxLength)}
	}
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, check.Invalid(at, part, validation.IsDNS1123Subdomain(part))...)
	}
	return errs
}

// quantityErrors rejects negative amounts.
func quantityErrors(q resource.Quantity, at *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(at, q.String(), fmt.Sprintf("must be greater than or equal to %d", 0))}
	}
	return nil
}
