package core

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
		Validate: func(next, _ kind.Object, _ string) field.ErrorList {
			return leaseValidate(&next.(*coordinationv1.Lease).Spec, field.NewPath("spec"))
		},
		Columns: []table.Column{
			table.Name(),
			table.Text("Holder", "The holder of the lease.", leaseHolder),
			table.Age(),
		},
		Durability: func(_, _ kind.Object) store.Durability { return store.Volatile },
	}
}

func leaseHolder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func leaseValidate(spec *coordinationv1.LeaseSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if d := spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	errs = append(errs, check.NilOrNonNegative(path.Child("leaseTransitions"), spec.LeaseTransitions)...)
	if spec.Strategy != nil {
		errs = append(errs, leaseStrategy(path.Child("strategy"), string(*spec.Strategy))...)
	} else if h := spec.PreferredHolder; h != nil && *h != "" {
		errs = append(errs, field.Forbidden(path.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}

// leaseStrategy accepts OldestEmulationVersion and names with a domain prefix.
func leaseStrategy(path *field.Path, strategy string) field.ErrorList {
	if strategy == string(coordinationv1.OldestEmulationVersion) {
		return nil
	}
	return validation.IsDomainPrefixedKey(path, strategy)
}
