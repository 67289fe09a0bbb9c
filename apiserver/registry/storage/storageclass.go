package storage

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// Upstream's limits for the parameters of a class.
const (
	maxParameters     = 512
	maxParameterBytes = 256 << 10
)

func storageClassResource() kind.Resource {
	return kind.Resource{
		GVR:        client.StorageClasses,
		Kind:       "StorageClass",
		ShortNames: []string{"sc"},
		New:        func() kind.Object { return new(storagev1.StorageClass) },
		Default: func(obj kind.Object) {
			class := obj.(*storagev1.StorageClass)
			kind.SetIfNil(&class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
			kind.SetIfNil(&class.VolumeBindingMode, storagev1.VolumeBindingImmediate)
		},
		Validate: storageClassValidate,
		Columns:  storageClassColumns(),
	}
}

func storageClassColumns() []table.Column {
	type class = storagev1.StorageClass
	name := table.Text("Name", "Unique within the cluster.", func(c *class) string {
		if claim.IsDefault(c) {
			return c.Name + " (default)"
		}
		return c.Name
	})
	name.Format = "name"
	return []table.Column{
		name,
		table.Text("Provisioner", "The provisioner of the volumes.", func(c *class) string { return c.Provisioner }),
		table.Text("ReclaimPolicy", "What happens to a volume when its claim is deleted.", func(c *class) string {
			return string(ptr.Deref(c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete))
		}),
		table.Text("VolumeBindingMode", "When claims are bound to volumes.", func(c *class) string {
			return string(ptr.Deref(c.VolumeBindingMode, storagev1.VolumeBindingImmediate))
		}),
		boolColumn("AllowVolumeExpansion", "Whether volumes can be expanded.",
			func(c *class) *bool { return c.AllowVolumeExpansion }, false),
		table.Age(),
	}
}

func storageClassValidate(next, cur kind.Object, _ string) field.ErrorList {
	class := next.(*storagev1.StorageClass)
	errs := slices.Concat(
		provisioner(class.Provisioner, field.NewPath("provisioner")),
		parameters(class.Parameters, field.NewPath("parameters")),
		check.NilOr(field.NewPath("reclaimPolicy"), class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete,
			corev1.PersistentVolumeReclaimRetain),
		check.NilOr(field.NewPath("volumeBindingMode"), class.VolumeBindingMode, storagev1.VolumeBindingImmediate,
			storagev1.VolumeBindingWaitForFirstConsumer),
	)
	for i := range class.AllowedTopologies {
		term, path := &class.AllowedTopologies[i], field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions")
		errs = append(errs, topology(term, path)...)
		if slices.ContainsFunc(class.AllowedTopologies[:i], func(t corev1.TopologySelectorTerm) bool {
			return equality.Semantic.DeepEqual(*term, t)
		}) {
			errs = append(errs, field.Duplicate(path, ""))
		}
	}
	if cur == nil {
		return errs
	}
	old := cur.(*storagev1.StorageClass)
	return slices.Concat(errs,
		immutableErrors("parameters", class.Parameters, old.Parameters),
		immutableErrors("provisioner", class.Provisioner, old.Provisioner),
		immutableErrors("reclaimPolicy", class.ReclaimPolicy, old.ReclaimPolicy),
		check.Immutable(field.NewPath("volumeBindingMode"), class.VolumeBindingMode, old.VolumeBindingMode),
	)
}

// immutableErrors returns upstream's error for a changed field of a class.
func immutableErrors(name string, next, old any) field.ErrorList {
	if equality.Semantic.DeepEqual(next, old) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath(name), "updates to "+name+" are forbidden.")}
}

// provisioner checks a qualified name, which may have upper-case letters.
func provisioner(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, name)}
	}
	return check.Invalid(at, name, validation.IsQualifiedName(strings.ToLower(name)))
}

func parameters(all map[string]string, at *field.Path) field.ErrorList {
	if len(all) > maxParameters {
		return field.ErrorList{field.TooLong(at, "Provisioner Parameters exceeded max allowed", maxParameters)}
	}
	var errs field.ErrorList
	size := 0
	for key, value := range all {
		if key == "" {
			errs = append(errs, field.Invalid(at, key, "field can not be empty."))
		}
		size += len(key) + len(value)
	}
	if size > maxParameterBytes {
		errs = append(errs, field.TooLong(at, "", maxParameterBytes))
	}
	return errs
}

func topology(term *corev1.TopologySelectorTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	keys := map[string]bool{}
	for i, r := range term.MatchLabelExpressions {
		path := at.Index(i)
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(path.Child("values"), ""))
		}
		for j, v := range r.Values {
			if slices.Contains(r.Values[:j], v) {
				errs = append(errs, field.Duplicate(path.Child("values").Index(j), v))
			}
		}
		errs = append(errs, metavalidation.ValidateLabelName(r.Key, path.Child("key"))...)
		errs = append(errs, check.Unique(path.Child("key"), r.Key, keys)...)
	}
	return errs
}

func volumeAttributesClassResource() kind.Resource {
	type class = storagev1.VolumeAttributesClass
	return kind.Resource{
		GVR:        client.VolumeAttributesClasses,
		Kind:       "VolumeAttributesClass",
		ShortNames: []string{"vac"},
		New:        func() kind.Object { return new(class) },
		Prepare: func(next, cur kind.Object, _ string) {
			if cur == nil {
				protect(next, claim.AttributesProtection)
			}
		},
		Validate: attributesClassValidate,
		Columns: []table.Column{
			table.Name(),
			table.Text("DriverName", "The driver of the attributes.", func(c *class) string { return c.DriverName }),
			table.Age(),
		},
	}
}

func attributesClassValidate(next, cur kind.Object, _ string) field.ErrorList {
	class := next.(*storagev1.VolumeAttributesClass)
	errs := provisioner(class.DriverName, field.NewPath("driverName"))
	if len(class.Parameters) == 0 {
		errs = append(errs, field.Required(field.NewPath("parameters"), "must contain at least one key/value pair"))
	}
	errs = append(errs, parameters(class.Parameters, field.NewPath("parameters"))...)
	if cur == nil {
		return errs
	}
	old := cur.(*storagev1.VolumeAttributesClass)
	errs = append(errs, immutableErrors("driverName", class.DriverName, old.DriverName)...)
	return append(errs, immutableErrors("parameters", class.Parameters, old.Parameters)...)
}
