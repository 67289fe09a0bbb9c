package storage

import (
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// minUpdatePeriod is the minimum of nodeAllocatableUpdatePeriodSeconds.
const minUpdatePeriod = 10

func csiDriverResource() kind.Resource {
	return kind.Resource{
		GVR:      client.CSIDrivers,
		Kind:     "CSIDriver",
		New:      func() kind.Object { return new(storagev1.CSIDriver) },
		Default:  csiDriverDefault,
		Prepare:  csiDriverPrepare,
		Validate: csiDriverValidate,
		Warnings: csiDriverWarnings,
		Columns:  csiDriverColumns(),
	}
}

func csiDriverColumns() []table.Column {
	type driver = storagev1.CSIDriver
	return []table.Column{
		table.Name(),
		boolColumn("AttachRequired", "Whether volumes are attached to nodes.",
			func(d *driver) *bool { return d.Spec.AttachRequired }, true),
		boolColumn("PodInfoOnMount", "Whether the driver gets information about the pod.",
			func(d *driver) *bool { return d.Spec.PodInfoOnMount }, false),
		boolColumn("StorageCapacity", "Whether the driver publishes its capacity.",
			func(d *driver) *bool { return d.Spec.StorageCapacity }, false),
		table.Text("TokenRequests", "Audiences of the requested tokens.", func(d *driver) string {
			if d.Spec.TokenRequests == nil {
				return table.Unset
			}
			var audiences []string
			for _, t := range d.Spec.TokenRequests {
				audiences = append(audiences, t.Audience)
			}
			return strings.Join(audiences, ",")
		}),
		boolColumn("RequiresRepublish", "Whether NodePublishVolume is called periodically.",
			func(d *driver) *bool { return d.Spec.RequiresRepublish }, false),
		table.Text("Modes", "Supported volume lifecycle modes.", func(d *driver) string {
			var modes []string
			for _, m := range d.Spec.VolumeLifecycleModes {
				modes = append(modes, string(m))
			}
			return table.OrNone(strings.Join(modes, ","))
		}),
		table.Age(),
	}
}

func csiDriverDefault(obj kind.Object) {
	spec := &obj.(*storagev1.CSIDriver).Spec
	kind.SetIfNil(&spec.AttachRequired, true)
	kind.SetIfNil(&spec.PodInfoOnMount, false)
	kind.SetIfNil(&spec.StorageCapacity, false)
	kind.SetIfNil(&spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	kind.SetIfNil(&spec.RequiresRepublish, false)
	kind.SetIfNil(&spec.SELinuxMount, false)
	kind.SetIfNil(&spec.PreventPodSchedulingIfMissing, false)
	if len(spec.VolumeLifecycleModes) == 0 {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// csiDriverPrepare increments the generation when the spec changes.
func csiDriverPrepare(next, cur kind.Object, subresource string) {
	if cur == nil || subresource == "delete" {
		return
	}
	d, old := next.(*storagev1.CSIDriver), cur.(*storagev1.CSIDriver)
	csiDriverDefault(d)
	if !equality.Semantic.DeepEqual(d.Spec, old.Spec) {
		d.Generation = old.Generation + 1
	}
}

func csiDriverValidate(next, cur kind.Object, _ string) field.ErrorList {
	spec, at := &next.(*storagev1.CSIDriver).Spec, field.NewPath("spec")
	errs := slices.Concat(
		check.NilOr(at.Child("fsGroupPolicy"), spec.FSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy,
			storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
		tokenRequests(spec.TokenRequests, at.Child("tokenRequests")))
	for _, mode := range spec.VolumeLifecycleModes {
		errs = append(errs, check.OneOf(at.Child("volumeLifecycleModes"), mode, storagev1.VolumeLifecycleEphemeral,
			storagev1.VolumeLifecyclePersistent)...)
	}
	if s := spec.NodeAllocatableUpdatePeriodSeconds; s != nil && *s < minUpdatePeriod {
		errs = append(errs,
			field.Invalid(at.Child("nodeAllocatableUpdatePeriodSeconds"), *s, "must be greater than or equal to 10 seconds"))
	}
	if spec.ServiceAccountTokenInSecrets != nil && len(spec.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(at.Child("serviceAccountTokenInSecrets"), *spec.ServiceAccountTokenInSecrets,
			"serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	if cur == nil {
		return errs
	}
	old := &cur.(*storagev1.CSIDriver).Spec
	return slices.Concat(errs,
		check.Immutable(at.Child("attachedRequired"), spec.AttachRequired, old.AttachRequired),
		check.Immutable(at.Child("volumeLifecycleModes"), spec.VolumeLifecycleModes, old.VolumeLifecycleModes))
}

// csiDriverWarnings warns of tokens that may get into logs, when they are requested or changed.
func csiDriverWarnings(next, cur kind.Object) []string {
	spec, old := &next.(*storagev1.CSIDriver).Spec, &storagev1.CSIDriverSpec{}
	if cur != nil {
		old = &cur.(*storagev1.CSIDriver).Spec
	}
	if len(spec.TokenRequests) == 0 || spec.ServiceAccountTokenInSecrets != nil ||
		equality.Semantic.DeepEqual(spec.TokenRequests, old.TokenRequests) {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent " +
		"possible logging of tokens in volume attributes"}
}

// tokenRequests allows one token for each audience, valid for 10 minutes to 2^32 seconds.
func tokenRequests(requests []storagev1.TokenRequest, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, r := range requests {
		path := at.Index(i)
		if seen[r.Audience] {
			errs = append(errs, field.Duplicate(path.Child("audience"), r.Audience))
			continue
		}
		seen[r.Audience] = true
		if s := r.ExpirationSeconds; s != nil && *s < 600 {
			errs = append(errs,
				field.Invalid(path.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes"))
		} else if s != nil && *s > 1<<32 {
			errs = append(errs,
				field.Invalid(path.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	return errs
}
