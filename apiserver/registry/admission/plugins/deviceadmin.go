package plugins

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
)

// deviceAdmin admits claims with admin access to devices only in labelled namespaces. Admin access works on devices
// that are in use.
func deviceAdmin(c client.Client) admission.Plugin {
	return admission.Plugin{Name: "DeviceAdminAccess", Validate: func(ctx context.Context, r *admission.Request) error {
		at := adminAccess(r)
		if at == nil {
			return nil
		}
		ns, err := client.Get[*corev1.Namespace](ctx, c, "", r.Namespace)
		if err != nil {
			return err
		}
		if ns.Labels[resourcev1.DRAAdminNamespaceLabelKey] == "true" {
			return nil
		}
		return apierrors.NewInvalid(r.Resource.GVK().GroupKind(), r.Name, field.ErrorList{field.Forbidden(at,
			fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace",
				resourcev1.DRAAdminNamespaceLabelKey))})
	}}
}

// adminAccess returns the first field that requests admin access; nil: no field requests it, or an earlier write did.
func adminAccess(r *admission.Request) *field.Path {
	switch obj := r.Object.(type) {
	case *resourcev1.ResourceClaimTemplate:
		return adminRequest(r, &obj.Spec.Spec)
	case *resourcev1.ResourceClaim:
		if r.Subresource == "" {
			return adminRequest(r, &obj.Spec)
		}
		if old, ok := r.Old.(*resourcev1.ResourceClaim); r.Subresource == "status" && ok && adminResult(old) < 0 {
			if i := adminResult(obj); i >= 0 {
				return field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess")
			}
		}
	}
	return nil
}

// adminRequest checks specs only at creation, because they are immutable.
func adminRequest(r *admission.Request, spec *resourcev1.ResourceClaimSpec) *field.Path {
	if r.Operation != admission.Create {
		return nil
	}
	for i := range spec.Devices.Requests {
		if e := spec.Devices.Requests[i].Exactly; e != nil && e.AdminAccess != nil && *e.AdminAccess {
			return field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess")
		}
	}
	return nil
}

// adminResult returns the index of the first allocated device with admin access, or -1.
func adminResult(claim *resourcev1.ResourceClaim) int {
	if a := claim.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			if admin := a.Devices.Results[i].AdminAccess; admin != nil && *admin {
				return i
			}
		}
	}
	return -1
}
