// Package storage contains the kinds of volumes, claims, classes and CSI drivers. New volumes and claims get the
// finalizers that protect them while they are in use; controllers remove the finalizers.
//
//   - storagemigration.go: the kind StorageVersionMigration, which requests a rewrite of objects in their storage
//     version
package storage

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

// Resources returns the kinds of this package, in the order of discovery.
func Resources() []kind.Resource {
	return []kind.Resource{
		persistentVolumeClaimResource(),
		persistentVolumeResource(),
		csiDriverResource(),
		csiNodeResource(),
		csiStorageCapacityResource(),
		storageClassResource(),
		volumeAttachmentResource(),
		volumeAttributesClassResource(),
		storageVersionMigrationResource(),
	}
}

// positive returns an error unless the amount is greater than zero.
func positive(amount resource.Quantity, path *field.Path) field.ErrorList {
	if amount.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path, amount.String(), "must be greater than zero")}
	}
	return nil
}

// notNegative returns an error if the amount is negative; nil is valid.
func notNegative(amount *resource.Quantity, path *field.Path) field.ErrorList {
	if amount != nil && amount.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, amount.String(), "must be greater than or equal to 0")}
	}
	return nil
}

// accessModes checks that the modes are known, and that ReadWriteOncePod is the only one.
func accessModes(modes []corev1.PersistentVolumeAccessMode, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	alone, shared := false, false
	for _, mode := range modes {
		errs = append(errs, check.UnsetOr(path, mode, corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany,
			corev1.ReadWriteOncePod)...)
		alone = alone || mode == corev1.ReadWriteOncePod
		shared = shared || mode != corev1.ReadWriteOncePod
	}
	if alone && shared {
		errs = append(errs, field.Forbidden(path, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

// modesText returns access modes as kubectl shows them.
func modesText(modes []corev1.PersistentVolumeAccessMode) string {
	has := map[corev1.PersistentVolumeAccessMode]bool{}
	for _, mode := range modes {
		has[mode] = true
	}
	var short []string
	for _, m := range []struct {
		mode corev1.PersistentVolumeAccessMode
		text string
	}{{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"},
		{corev1.ReadWriteOncePod, "RWOP"}} {
		if has[m.mode] {
			short = append(short, m.text)
		}
	}
	return strings.Join(short, ",")
}

// protect adds the finalizer unless the object has it.
func protect(obj kind.Object, finalizer string) {
	if had := obj.GetFinalizers(); !slices.Contains(had, finalizer) {
		obj.SetFinalizers(append(had, finalizer))
	}
}

// classWarning warns about the annotation that storageClassName has replaced.
func classWarning(obj kind.Object) []string {
	if _, ok := obj.GetAnnotations()[corev1.BetaStorageClassAnnotation]; !ok {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation)
	return []string{path.String() + `: deprecated since v1.8; use "storageClassName" attribute instead`}
}

// phaseText returns the phase, or Terminating if the object is being deleted.
func phaseText[S ~string](obj kind.Object, phase S) string {
	if obj.GetDeletionTimestamp() != nil {
		return "Terminating"
	}
	return string(phase)
}

// boolColumn returns the column of an optional boolean. missing is the value for nil.
func boolColumn[T kind.Object](name, description string, get func(T) *bool, missing bool) table.Column {
	c := table.Name()
	c.Name, c.Type, c.Format, c.Description = name, "boolean", "", description
	c.Cell = func(obj store.Object, _ time.Time) any {
		if value := get(obj.(T)); value != nil {
			return *value
		}
		return missing
	}
	return c
}
