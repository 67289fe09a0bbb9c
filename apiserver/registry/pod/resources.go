package pod

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// resourcesValidate validates a container's resources. claims are the names of the pod's claims.
func resourcesValidate(r *corev1.ResourceRequirements, claims map[string]bool, path *field.Path) field.ErrorList {
	errs := amountsValidate(r.Limits, check.ContainerResourceName, path.Child("limits"))
	errs = append(errs, amountsValidate(r.Requests, check.ContainerResourceName, path.Child("requests"))...)
	errs = append(errs, requestsWithinLimits(r, path)...)
	for i, c := range r.Claims {
		at := path.Child("claims").Index(i).Child("name")
		if !claims[c.Name] {
			errs = append(errs, field.NotFound(at, c.Name))
		}
	}
	return errs
}

func amountsValidate(list corev1.ResourceList, name func(*field.Path, corev1.ResourceName) field.ErrorList,
	path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, n := range slices.Sorted(maps.Keys(list)) {
		at := path.Key(string(n))
		errs = append(errs, name(at, n)...)
		errs = append(errs, check.Amount(at, n, list[n])...)
	}
	return errs
}

// requestsWithinLimits also requires limits for resources that cannot be overcommitted, and cpu or memory for huge
// pages.
func requestsWithinLimits(r *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		limit, limited := r.Limits[name]
		switch {
		case !limited && !check.Overcommittable(name):
			errs = append(errs, field.Required(path.Child("limits"), "Limit must be set for non overcommitable resources"))
		case limited && !check.Overcommittable(name) && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(path.Child("requests"), request.String(),
				fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(path.Child("requests"), request.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	huge, others := false, false
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for name := range list {
			huge = huge || check.IsHugePages(name)
			others = others || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		}
	}
	if huge && !others {
		errs = append(errs, field.Forbidden(path, "HugePages require cpu or memory"))
	}
	return errs
}
