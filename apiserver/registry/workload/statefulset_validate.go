package workload

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/registry/pod"
	"monopod/apiserver/registry/storage"
)

func statefulSetSpec(spec *appsv1.StatefulSetSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p := spec.PodManagementPolicy; p != appsv1.OrderedReadyPodManagement && p != appsv1.ParallelPodManagement {
		errs = append(errs, field.Invalid(path.Child("podManagementPolicy"), p,
			fmt.Sprintf("must be '%s' or '%s'", appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)))
	}
	const retain, remove = appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	retention, at := spec.PersistentVolumeClaimRetentionPolicy, path.Child("persistentVolumeClaimRetentionPolicy")
	errs = slices.Concat(errs,
		statefulSetStrategy(&spec.UpdateStrategy, path.Child("updateStrategy")),
		check.UnsetOr(at.Child("whenDeleted"), retention.WhenDeleted, retain, remove),
		check.UnsetOr(at.Child("whenScaled"), retention.WhenScaled, retain, remove),
		check.NilOrNonNegative(path.Child("replicas"), spec.Replicas),
		check.NonNegative(path.Child("minReadySeconds"), spec.MinReadySeconds))
	if spec.Ordinals != nil {
		errs = append(errs, check.NonNegative(path.Child("ordinals", "start"), spec.Ordinals.Start)...)
	}
	errs = slices.Concat(errs,
		check.UnsetOrNamed(path.Child("serviceName"), spec.ServiceName, validation.IsDNS1123Label),
		selectorErrors(spec.Selector, path.Child("selector"), "statefulset"),
		matchErrors(spec.Selector, &spec.Template, path),
		pod.ValidateTemplate(withClaims(spec), path.Child("template")),
		runForeverErrors(&spec.Template, path.Child("template"), "StatefulSet"))
	for i := range spec.VolumeClaimTemplates {
		errs = append(errs, storage.ValidateClaim(&spec.VolumeClaimTemplates[i].Spec,
			path.Child("volumeClaimTemplates").Index(i).Child("spec"))...)
	}
	return errs
}

func statefulSetStrategy(s *appsv1.StatefulSetUpdateStrategy, path *field.Path) field.ErrorList {
	rolling, r := path.Child("rollingUpdate"), s.RollingUpdate
	switch {
	case s.Type == appsv1.OnDeleteStatefulSetStrategyType && r != nil:
		return field.ErrorList{field.Invalid(rolling, r, "only allowed for updateStrategy 'RollingUpdate'")}
	case s.Type != appsv1.OnDeleteStatefulSetStrategyType && s.Type != appsv1.RollingUpdateStatefulSetStrategyType:
		return field.ErrorList{field.Invalid(path, s, "must be 'RollingUpdate' or 'OnDelete'")}
	case r == nil:
		return nil
	}
	errs := check.NilOrNonNegative(rolling.Child("partition"), r.Partition)
	if u, at := r.MaxUnavailable, rolling.Child("maxUnavailable"); u != nil {
		errs = append(errs, check.IntOrPercent(at, u)...)
		if check.IsNothing(u) {
			errs = append(errs, field.Invalid(at, u.String(), "cannot be 0"))
		}
		errs = append(errs, check.AtMostAll(at, u)...)
	}
	return errs
}

// withClaims returns the template with a volume for each claim template, as in the pods. The volume replaces one of the
// same name.
func withClaims(spec *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	if len(spec.VolumeClaimTemplates) == 0 {
		return &spec.Template
	}
	template := spec.Template
	template.Spec.Volumes = slices.Clone(template.Spec.Volumes)
	for i := range spec.VolumeClaimTemplates {
		name := spec.VolumeClaimTemplates[i].Name
		volume := corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}}
		at := slices.IndexFunc(template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
		if at >= 0 {
			template.Spec.Volumes[at] = volume
		} else {
			template.Spec.Volumes = append(template.Spec.Volumes, volume)
		}
	}
	return &template
}

func statefulSetStatus(status, old *appsv1.StatefulSetStatus, path *field.Path) field.ErrorList {
	ready := check.Count{Name: "readyReplicas", Value: int64(status.ReadyReplicas)}
	current := check.Count{Name: "currentReplicas", Value: int64(status.CurrentReplicas)}
	updated := check.Count{Name: "updatedReplicas", Value: int64(status.UpdatedReplicas)}
	available := check.Count{Name: "availableReplicas", Value: int64(status.AvailableReplicas)}
	errs := check.Counts(path, check.Count{Name: "replicas", Value: int64(status.Replicas)}, ready, current, updated,
		available,
		check.Count{Name: "observedGeneration", Value: status.ObservedGeneration})
	errs = append(errs, check.NonDecreasing(path.Child("collisionCount"), status.CollisionCount, old.CollisionCount)...)
	errs = append(errs, check.AtMost(path, status.Replicas, "status.replicas", ready, current, updated, available)...)
	return append(errs, check.AtMost(path, status.ReadyReplicas, "status.readyReplicas", available)...)
}
