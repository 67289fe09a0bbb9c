package workload

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/volume"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/apiserver/registry/pod"
	"monopod/apiserver/registry/storage"
)

// statefulSetMayChange is upstream's error for a change of an immutable field.
const statefulSetMayChange = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', " +
	"'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"

func statefulSetResource() kind.Resource {
	return kind.Resource{
		GVR:          client.StatefulSets,
		Kind:         "StatefulSet",
		Controller:   "statefulset",
		Namespaced:   true,
		ShortNames:   []string{"sts"},
		Categories:   []string{"all"},
		Subresources: append(kind.Parts("status"), kind.ScalePart(scales(statefulSetScale))),
		New:          func() kind.Object { return new(appsv1.StatefulSet) },
		ValidName:    apivalidation.NameIsDNSLabel,
		Default:      statefulSetDefault,
		Prepare:      kind.SpecAndStatus(statefulSetHalves, statefulSetDefault),
		Validate:     statefulSetValidate,
		Warnings:     statefulSetWarnings,
		Columns: append([]table.Column{
			table.Name(),
			table.Text("Ready", "Ready pods and desired pods.", func(s *appsv1.StatefulSet) string {
				return fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 1))
			}),
			table.Age(),
		}, pod.TemplateColumns(func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template })...),
	}
}

func statefulSetHalves(obj kind.Object) (*appsv1.StatefulSetSpec, *appsv1.StatefulSetStatus) {
	s := obj.(*appsv1.StatefulSet)
	return &s.Spec, &s.Status
}

// statefulSetDefault implements upstream's SetDefaults_StatefulSet of apps/v1. It also sets the claim templates' kind,
// as upstream's conversion does.
func statefulSetDefault(obj kind.Object) {
	spec := &obj.(*appsv1.StatefulSet).Spec
	kind.SetIfZero(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	s := &spec.UpdateStrategy
	if s.Type == "" { // a strategy with an explicit type and no parameters gets none
		s.Type = appsv1.RollingUpdateStatefulSetStrategyType
		kind.SetIfNil(&s.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if s.Type == appsv1.RollingUpdateStatefulSetStrategyType && s.RollingUpdate != nil {
		kind.SetIfNil(&s.RollingUpdate.Partition, 0)
		kind.SetIfNil(&s.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	kind.SetIfNil(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	retention := spec.PersistentVolumeClaimRetentionPolicy
	kind.SetIfZero(&retention.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	kind.SetIfZero(&retention.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	kind.SetIfNil(&spec.Replicas, 1)
	kind.SetIfNil(&spec.RevisionHistoryLimit, 10)
	pod.DefaultTemplate(&spec.Template)
	for i := range spec.VolumeClaimTemplates {
		claim := &spec.VolumeClaimTemplates[i]
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		kind.SetIfZero(&claim.Status.Phase, corev1.ClaimPending)
		storage.DefaultClaim(&claim.Spec)
	}
}

func statefulSetScale(obj kind.Object) (wanted **int32, there int32, selector string) {
	s := obj.(*appsv1.StatefulSet)
	return &s.Spec.Replicas, s.Status.Replicas, selectorText(s.Spec.Selector)
}

func statefulSetWarnings(next, cur kind.Object) []string {
	set, path := next.(*appsv1.StatefulSet), field.NewPath("spec")
	if cur != nil && set.Generation == cur.GetGeneration() {
		return nil
	}
	warnings := templateWarnings(next, cur, &set.Spec.Template)
	for i := range set.Spec.VolumeClaimTemplates {
		at := path.Child("volumeClaimTemplates").Index(i).Child("spec")
		warnings = append(warnings, volume.ClaimWarnings(&set.Spec.VolumeClaimTemplates[i].Spec, at)...)
	}
	if limit := set.Spec.RevisionHistoryLimit; limit != nil && *limit < 0 {
		warnings = append(warnings, path.Child("revisionHistoryLimit").String()+
			": a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return warnings
}

func statefulSetValidate(next, cur kind.Object, subresource string) field.ErrorList {
	s, path := next.(*appsv1.StatefulSet), field.NewPath("spec")
	if cur == nil {
		return statefulSetSpec(&s.Spec, path)
	}
	old := cur.(*appsv1.StatefulSet)
	if subresource == "status" {
		return statefulSetStatus(&s.Status, &old.Status, field.NewPath("status"))
	}
	errs := statefulSetSpec(&s.Spec, path)
	if !equality.Semantic.DeepEqual(statefulSetFixed(&s.Spec), statefulSetFixed(&old.Spec)) {
		errs = append(errs, field.Forbidden(path, statefulSetMayChange))
	}
	return errs
}

// statefulSetFixed returns the immutable part of a spec.
func statefulSetFixed(spec *appsv1.StatefulSetSpec) *appsv1.StatefulSetSpec {
	return &appsv1.StatefulSetSpec{
		Selector:             spec.Selector,
		ServiceName:          spec.ServiceName,
		PodManagementPolicy:  spec.PodManagementPolicy,
		VolumeClaimTemplates: spec.VolumeClaimTemplates,
	}
}
