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
		claimSources(&claim.Spec, nil)
		return
	}
	old := cur.(*corev1.PersistentVolumeClaim)
	switch subresource {
	case "":
		claim.Status = *old.Status.DeepCopy()
		claimSources(&claim.Spec, &old.Spec)
		DefaultClaim(&claim.Spec)
	case "status":
		claim.Spec = *old.Spec.DeepCopy()
		if old.Status.HealthStatus == nil { // the feature gate CSIVolumeHealth is off
			claim.Status.HealthStatus = nil
		}
	}
}

// claimSources sets dataSource and dataSourceRef from each other. A new dataSource alone supports only claims and
// snapshots: upstream drops others, which older versions ignored. It also drops a new dataSourceRef with a namespace,
// as the feature gate CrossNamespaceVolumeDataSource is off. old is nil for a creation.
func claimSources(spec, old *corev1.PersistentVolumeClaimSpec) {
	if ref := spec.DataSourceRef; ref != nil && ptr.Deref(ref.Namespace, "") != "" &&
		(old == nil || old.DataSourceRef == nil) {
		spec.DataSourceRef = nil
	}
	if old == nil || old.DataSource == nil && old.DataSourceRef == nil {
		if s := spec.DataSource; s != nil && spec.DataSourceRef == nil && !dataSourceSupports(s) {
			spec.DataSource = nil
		}
	}
	from, ref := spec.DataSource, spec.DataSourceRef
	switch {
	case from != nil && ref == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: from.APIGroup, Kind: from.Kind, Name: from.Name}
	case from == nil && ref != nil && ptr.Deref(ref.Namespace, "") == "":
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}

// dataSourceSupports reports whether a dataSource without dataSourceRef can be of the kind.
func dataSourceSupports(s *corev1.TypedLocalObjectReference) bool {
	group := ptr.Deref(s.APIGroup, "")
	return s.Kind == "PersistentVolumeClaim" && group == "" ||
		s.Kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io"
}

func claimValidate(next, cur kind.Object, subresource string) field.ErrorList {
	claim := next.(*corev1.PersistentVolumeClaim)
	if subresource == "status" {
		return claimStatus(&claim.Status, field.NewPath("status"))
	}
	errs := ValidateClaim(&claim.Spec, field.NewPath("spec"))
	if cur == nil {
		return errs
	}
	return append(errs, claimUpdate(claim, cur.(*corev1.PersistentVolumeClaim))...)
}

// claimStatus checks the sizes of a claim, and how far its expansion is.
func claimStatus(s *corev1.PersistentVolumeClaimStatus, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(s.Capacity)) {
		errs = append(errs, notNegative(new(s.Capacity[name]), at.Child("capacity").Key(string(name)))...)
	}
	statuses, allocated := at.Child("allocatedResourceStatuses"), at.Child("allocatedResources")
	for _, name := range slices.Sorted(maps.Keys(s.AllocatedResourceStatuses)) {
		errs = append(errs, claimResource(name, statuses)...)
		errs = append(errs, check.OneOf(statuses, s.AllocatedResourceStatuses[name],
			corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
			corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress,
			corev1.PersistentVolumeClaimNodeResizeInfeasible)...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.AllocatedResources)) {
		unknown := claimResource(name, allocated)
		if errs = append(errs, unknown...); unknown == nil {
			errs = append(errs, notNegative(new(s.AllocatedResources[name]), allocated.Key(string(name)))...)
		}
	}
	return errs
}

// claimResource allows storage, and resources of other domains than Kubernetes' own.
func claimResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if errs := check.Invalid(at, string(name), validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	domain, _, prefixed := strings.Cut(string(name), "/")
	if name != corev1.ResourceStorage && (!prefixed || domain == "kubernetes.io" ||
		strings.HasSuffix(domain, ".kubernetes.io")) {
		return field.ErrorList{field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceStorage})}
	}
	return nil
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
	const applied = " is forbidden when status.currentVolumeAttributesClassName is not nil"
	switch {
	case old.Status.CurrentVolumeAttributesClassName == nil ||
		equality.Semantic.DeepEqual(name, old.Spec.VolumeAttributesClassName):
	case name == nil:
		errs = append(errs, field.Forbidden(at, "update to nil"+applied))
	case *name == "":
		errs = append(errs, field.Forbidden(at, "update to empty string"+applied))
	}
	return errs
}

// allowedClaimSpec returns old's spec with the allowed changes of claim: the volume and a missing class can be set
// once; a bound claim can change its VolumeAttributesClass and its requested size.
func allowedClaimSpec(claim, old *corev1.PersistentVolumeClaim) corev1.PersistentVolumeClaimSpec {
	was := *old.Spec.DeepCopy()
	claimSources(&was, &old.Spec) // an older version may have stored one of them
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
