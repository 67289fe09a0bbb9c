package storage

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/check"
	claims "monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/volume"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

func persistentVolumeClaimResource() kind.Resource {
	return kind.Resource{
		GVR:          client.PersistentVolumeClaims,
		Kind:         "PersistentVolumeClaim",
		Controller:   "persistentvolume-binder",
		Namespaced:   true,
		ShortNames:   []string{"pvc"},
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(corev1.PersistentVolumeClaim) },
		Default: func(obj kind.Object) {
			claim := obj.(*corev1.PersistentVolumeClaim)
			kind.SetIfZero(&claim.Status.Phase, corev1.ClaimPending)
			DefaultClaim(&claim.Spec)
		},
		Prepare:  claimPrepare,
		Validate: claimValidate,
		Warnings: claimWarnings,
		Columns:  claimColumns(),
	}
}

func claimColumns() []table.Column {
	type claim = corev1.PersistentVolumeClaim
	return []table.Column{
		table.Name(),
		table.Text("Status", "The phase of the claim.", func(c *claim) string { return phaseText(c, c.Status.Phase) }),
		table.Text("Volume", "The bound volume.", func(c *claim) string { return c.Spec.VolumeName }),
		table.Text("Capacity", "The capacity of the volume.", func(c *claim) string {
			if c.Spec.VolumeName == "" {
				return ""
			}
			return amountText(c.Status.Capacity)
		}),
		table.Text("Access Modes", "Access modes of the volume.", func(c *claim) string {
			if c.Spec.VolumeName == "" {
				return ""
			}
			return modesText(c.Status.AccessModes)
		}),
		table.Text("StorageClass", "The requested StorageClass.", claims.Class),
		table.Text("VolumeAttributesClass", "The requested VolumeAttributesClass.",
			func(c *claim) string { return table.OrUnset(c.Spec.VolumeAttributesClassName) }),
		table.Age(),
		table.Text("VolumeMode", "Filesystem or Block.",
			func(c *claim) string { return table.OrUnset(c.Spec.VolumeMode) }).Wide(),
	}
}

// DefaultClaim sets the defaults of the spec of a claim or a claim template.
func DefaultClaim(spec *corev1.PersistentVolumeClaimSpec) {
	kind.SetIfNil(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}

func claimPrepare(next, cur kind.Object, subresource string) {
	claim := next.(*corev1.PersistentVolumeClaim)
	if cur == nil {
		claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
		protect(claim, claims.ClaimProtection)
		claimSources(&claim.Spec)
		return
	}
	old := cur.(*corev1.PersistentVolumeClaim)
	switch subresource {
	case "":
		claim.Status = *old.Status.DeepCopy()
		claimSources(&claim.Spec)
		DefaultClaim(&claim.Spec)
	case "status":
		claim.Spec = *old.Spec.DeepCopy()
	}
}

// claimSources sets dataSource and dataSourceRef from each other. dataSource supports only claims and snapshots in the
// claim's namespace.
func claimSources(spec *corev1.PersistentVolumeClaimSpec) {
	if s := spec.DataSource; s != nil && !dataSourceSupports(s.Kind, s.APIGroup) {
		spec.DataSource = nil
	}
	from, ref := spec.DataSource, spec.DataSourceRef
	switch {
	case from != nil && ref == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: from.APIGroup, Kind: from.Kind, Name: from.Name}
	case from == nil && ref != nil && ref.Namespace == nil && dataSourceSupports(ref.Kind, ref.APIGroup):
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}

// dataSourceSupports reports whether dataSource supports the kind. It returns true for an empty kind, which validation
// rejects.
func dataSourceSupports(kind string, group *string) bool {
	switch kind {
	case "":
		return true
	case "PersistentVolumeClaim":
		return group == nil || *group == ""
	case "VolumeSnapshot":
		return group != nil && *group == "snapshot.storage.k8s.io"
	}
	return false
}

func claimValidate(next, cur kind.Object, subresource string) field.ErrorList {
	claim := next.(*corev1.PersistentVolumeClaim)
	if s := &claim.Status; subresource == "status" {
		var errs field.ErrorList
		for _, amounts := range []struct {
			of   corev1.ResourceList
			name string
		}{{s.Capacity, "capacity"}, {s.AllocatedResources, "allocatedResources"}} {
			for _, name := range slices.Sorted(maps.Keys(amounts.of)) {
				at := field.NewPath("status", amounts.name).Key(string(name))
				errs = append(errs, notNegative(new(amounts.of[name]), at)...)
			}
		}
		return errs
	}
	errs := ValidateClaim(&claim.Spec, field.NewPath("spec"))
	if cur == nil {
		return errs
	}
	return append(errs, claimUpdate(claim, cur.(*corev1.PersistentVolumeClaim))...)
}

// ValidateClaim checks the spec of a claim or a claim template.
func ValidateClaim(spec *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), "at least 1 access mode is required"))
	}
	if spec.Selector != nil {
		errs = append(errs, check.LabelSelector(at.Child("selector"), spec.Selector)...)
	}
	errs = append(errs, accessModes(spec.AccessModes, at.Child("accessModes"))...)
	size := at.Child("resources").Key(string(corev1.ResourceStorage))
	if amount, ok := spec.Resources.Requests[corev1.ResourceStorage]; ok {
		errs = append(errs, positive(amount, size)...)
	} else {
		errs = append(errs, field.Required(size, ""))
	}
	return slices.Concat(errs,
		check.UnsetOrNamed(at.Child("storageClassName"), ptr.Deref(spec.StorageClassName, ""), check.Subdomain),
		check.NilOr(at.Child("volumeMode"), spec.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem),
		dataSources(spec, at),
		check.UnsetOrNamed(at.Child("volumeAttributesClassName"), ptr.Deref(spec.VolumeAttributesClassName, ""),
			check.Subdomain))
}

func dataSources(spec *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	from, ref := spec.DataSource, spec.DataSourceRef
	if from != nil {
		errs = append(errs, dataSource(from.Kind, from.Name, from.APIGroup, at.Child("dataSource"))...)
	}
	if ref != nil {
		errs = append(errs, dataSource(ref.Kind, ref.Name, ref.APIGroup, at.Child("dataSourceRef"))...)
	}
	if from == nil || ref == nil {
		return errs
	}
	if ref.Namespace != nil && *ref.Namespace != "" {
		return append(errs,
			field.Invalid(at, at.Child("dataSource").String(), "may not be specified when dataSourceRef.namespace is specified"))
	}
	asRef := corev1.TypedObjectReference{APIGroup: from.APIGroup, Kind: from.Kind, Name: from.Name,
		Namespace: ref.Namespace}
	if !equality.Semantic.DeepEqual(asRef, *ref) {
		errs = append(errs, field.Invalid(at, at.Child("dataSource").String(), "must match dataSourceRef"))
	}
	return errs
}

func dataSource(kind, name string, group *string, at *field.Path) field.ErrorList {
	errs := append(check.Required(at.Child("name"), name), check.Required(at.Child("kind"), kind)...)
	if group != nil && *group != "" {
		return append(errs, check.Invalid(at.Child("apiGroup"), *group, validation.IsDNS1123Subdomain(*group))...)
	}
	if kind != "PersistentVolumeClaim" {
		errs = append(errs, field.Invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	}
	return errs
}

// claimUpdate rejects changes of the spec except those of allowedClaimSpec. After a failed expansion the requested size
// may decrease, but must stay above status.capacity. A VolumeAttributesClass can be removed only if it was never
// applied.
func claimUpdate(claim, old *corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	if was := allowedClaimSpec(claim, old); !equality.Semantic.DeepEqual(claim.Spec, was) {
		changed := check.ChangedFields(claim.Spec, was, equality.Semantic.DeepEqual)
		errs = append(errs, field.Forbidden(field.NewPath("spec"),
			"spec is immutable after creation except resources.requests and volumeAttributesClassName "+
				"for bound claims\nchanged: "+strings.Join(changed, ", ")))
	}
	size, had := claim.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(had) < 0 && size.Cmp(old.Status.Capacity[corev1.ResourceStorage]) <= 0 {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "resources", "requests", "storage"),
			"field can not be less than status.capacity"))
	}
	errs = append(errs, check.Immutable(field.NewPath("volumeMode"), claim.Spec.VolumeMode, old.Spec.VolumeMode)...)
	at, name := field.NewPath("spec", "volumeAttributesClassName"), claim.Spec.VolumeAttributesClassName
	switch {
	case old.Spec.VolumeAttributesClassName == nil:
	case name == nil && old.Status.CurrentVolumeAttributesClassName != nil:
		errs = append(errs, field.Forbidden(at,
			"update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"))
	case name != nil && *name == "":
		errs = append(errs, field.Forbidden(at, "update from non-nil value to an empty string is forbidden"))
	}
	return errs
}

// allowedClaimSpec returns old's spec with the allowed changes of claim: the volume and a missing class can be set
// once; a bound claim can change its VolumeAttributesClass and its requested size.
func allowedClaimSpec(claim, old *corev1.PersistentVolumeClaim) corev1.PersistentVolumeClaimSpec {
	was := *old.Spec.DeepCopy()
	kind.SetIfZero(&was.VolumeName, claim.Spec.VolumeName)
	if _, annotated := old.Annotations[corev1.BetaStorageClassAnnotation]; !annotated {
		kind.SetIfZero(&was.StorageClassName, claim.Spec.StorageClassName)
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return was
	}
	was.VolumeAttributesClassName = claim.Spec.VolumeAttributesClassName
	if amount, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]; ok && was.Resources.Requests != nil {
		was.Resources.Requests[corev1.ResourceStorage] = amount
	}
	return was
}

func claimWarnings(next, _ kind.Object) []string {
	claim := next.(*corev1.PersistentVolumeClaim)
	return append(classWarning(claim), volume.ClaimWarnings(&claim.Spec, field.NewPath("spec"))...)
}
