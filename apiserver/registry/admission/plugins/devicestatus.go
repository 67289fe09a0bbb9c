package plugins

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"monopod/apiserver/auth"
	"monopod/apiserver/registry/admission"
)

// deviceStatus requires permissions in addition to writing a ResourceClaim's status: the subresource
// resourceclaims/binding for the allocation and the reservations, and resourceclaims/driver with the driver's name for
// the driver's devices.
func deviceStatus(roles Roles) admission.Plugin {
	return admission.Plugin{Name: "DeviceStatusAuthorization",
		Validate: func(ctx context.Context, r *admission.Request) error {
			old, ok := r.Old.(*resourcev1.ResourceClaim)
			next, also := r.Object.(*resourcev1.ResourceClaim)
			user, known := auth.Known(ctx)
			if !ok || !also || r.Operation != admission.Update || r.Subresource != "status" || roles == nil || !known ||
				slices.Contains(user.Groups, auth.Masters) {
				return nil
			}
			w := claimWriter{roles, user}
			errs, err := w.check(ctx, r.Namespace, &next.Status, &old.Status)
			if err != nil || len(errs) == 0 {
				return err
			}
			return apierrors.NewInvalid(r.Resource.GVK().GroupKind(), next.Name, errs)
		}}
}

// claimWriter is a user that writes the status of a ResourceClaim.
type claimWriter struct {
	roles Roles
	user  auth.User
}

func (w claimWriter) check(ctx context.Context, namespace string, next,
	old *resourcev1.ResourceClaimStatus) (errs field.ErrorList, err error) {
	at := field.NewPath("status")
	refuse := func(part, subresource string) {
		errs = append(errs, field.Forbidden(at.Child(part),
			fmt.Sprintf("user %q may not write it without permission for resourceclaims/%s", w.user.Name, subresource)))
	}
	if !equality.Semantic.DeepEqual(next.Allocation, old.Allocation) ||
		!equality.Semantic.DeepEqual(next.ReservedFor, old.ReservedFor) {
		ok, err := w.may(ctx, auth.Attributes{Subresource: resourcev1.SubresourceBinding}, "")
		if err != nil {
			return nil, err
		}
		if !ok {
			refuse("allocation", resourcev1.SubresourceBinding)
		}
	}
	if next.Allocation == nil {
		return errs, nil // a deallocation also removes the devices' status
	}
	prefixes := []string{resourcev1.VerbPrefixArbitraryNode}
	// The service account of a pod on the node of the devices may write with another prefix, too.
	node, on := nodeOf(next.Allocation), w.user.Extra[serviceaccount.NodeNameKey]
	_, _, other := serviceaccount.SplitUsername(w.user.Name)
	if other == nil && node != "" && slices.Equal(on, []string{node}) {
		prefixes = append(prefixes, resourcev1.VerbPrefixAssociatedNode)
	}
	for _, driver := range sets.List(changedDrivers(next.Devices, old.Devices)) {
		ok, err := w.may(ctx, auth.Attributes{Subresource: resourcev1.SubresourceDriver, Namespace: namespace, Name: driver},
			prefixes...)
		if err != nil {
			return nil, err
		}
		if !ok {
			refuse("devices", resourcev1.SubresourceDriver)
		}
	}
	return errs, nil
}

// may reports whether the user has the verb update or patch with one of the prefixes.
func (w claimWriter) may(ctx context.Context, what auth.Attributes, prefixes ...string) (bool, error) {
	what.User, what.Group, what.Version, what.Resource = w.user, resourcev1.GroupName, "v1", "resourceclaims"
	for _, prefix := range prefixes {
		for _, verb := range []string{"update", "patch"} {
			what.Verb = prefix + verb
			if ok, _, err := w.roles.Authorize(ctx, what); ok || err != nil {
				return ok, err
			}
		}
	}
	return false, nil
}

// nodeOf returns the node of the devices; empty if they are on several nodes.
func nodeOf(a *resourcev1.AllocationResult) string {
	if a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := &a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) > 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := &term.MatchFields[0]
	if f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}

// changedDrivers returns the drivers whose device status differs.
func changedDrivers(next, old []resourcev1.AllocatedDeviceStatus) sets.Set[string] {
	out := sets.New[string]()
	differ := func(a, b []resourcev1.AllocatedDeviceStatus) {
		for i := range a {
			if !slices.ContainsFunc(b,
				func(d resourcev1.AllocatedDeviceStatus) bool { return equality.Semantic.DeepEqual(d, a[i]) }) {
				out.Insert(a[i].Driver)
			}
		}
	}
	differ(next, old)
	differ(old, next)
	return out
}
