package core

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

func leaseResource() kind.Resource {
	return kind.Resource{
		GVR:        client.Leases,
		Kind:       "Lease",
		Namespaced: true,
		New:        func() kind.Object { return new(coordinationv1.Lease) },
		Validate:   leaseValidate,
		Columns: []table.Column{
			table.Name(),
			table.Text("Holder", "The holder of the lease.",
				func(lease *coordinationv1.Lease) string { return ptr.Deref(lease.Spec.HolderIdentity, "") }),
			table.Age(),
		},
		Durability: func(_, _ kind.Object) store.Durability { return store.Volatile },
	}
}

// leaseValidate accepts OldestEmulationVersion and names with a domain prefix as strategy.
func leaseValidate(next, _ kind.Object, _ string) field.ErrorList {
	spec, path := &next.(*coordinationv1.Lease).Spec, field.NewPath("spec")
	var errs field.ErrorList
	if d := spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	errs = append(errs, check.NilOrNonNegative(path.Child("leaseTransitions"), spec.LeaseTransitions)...)
	if s := spec.Strategy; s != nil && *s != coordinationv1.OldestEmulationVersion {
		errs = append(errs, validation.IsDomainPrefixedKey(path.Child("strategy"), string(*s))...)
	} else if h := spec.PreferredHolder; s == nil && h != nil && *h != "" {
		errs = append(errs, field.Forbidden(path.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}
