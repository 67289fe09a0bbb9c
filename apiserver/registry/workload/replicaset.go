package workload

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/apiserver/registry/pod"
)

func replicaSetResource() kind.Resource {
	return kind.Resource{
		GVR:          client.ReplicaSets,
		Kind:         "ReplicaSet",
		Controller:   "replicaset",
		Namespaced:   true,
		ShortNames:   []string{"rs"},
		Categories:   []string{"all"},
		Subresources: append(kind.Parts("status"), kind.ScalePart(scales(replicaSetScale))),
		New:          func() kind.Object { return new(appsv1.ReplicaSet) },
		Default:      replicaSetDefault,
		Prepare:      kind.SpecAndStatus(replicaSetHalves, replicaSetDefault),
		Validate: withSelector(replicaSetHalves, replicaSetSpec,
			func(next, _ *appsv1.ReplicaSetStatus, path *field.Path) field.ErrorList {
				return replicaSetStatus(next, path)
			},
			func(s *appsv1.ReplicaSetSpec) *metav1.LabelSelector { return s.Selector }),
		Warnings: func(next, cur kind.Object) []string {
			return podsWarnings(next, cur, &next.(*appsv1.ReplicaSet).Spec.Template)
		},
		Fields: func(obj kind.Object) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(obj.(*appsv1.ReplicaSet).Status.Replicas))}
		},
		Columns: replicaSetColumns(),
	}
}

func replicaSetHalves(obj kind.Object) (*appsv1.ReplicaSetSpec, *appsv1.ReplicaSetStatus) {
	rs := obj.(*appsv1.ReplicaSet)
	return &rs.Spec, &rs.Status
}

func replicaSetColumns() []table.Column {
	return replicaColumns(
		func(r *appsv1.ReplicaSet) replicas {
			return replicas{r.Spec.Replicas, r.Status.Replicas, r.Status.ReadyReplicas}
		},
		func(r *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &r.Spec.Template },
		func(r *appsv1.ReplicaSet) string { return metav1.FormatLabelSelector(r.Spec.Selector) })
}

func replicaSetDefault(obj kind.Object) {
	rs := obj.(*appsv1.ReplicaSet)
	kind.SetIfNil(&rs.Spec.Replicas, 1)
	pod.DefaultTemplate(&rs.Spec.Template)
}

func replicaSetScale(obj kind.Object) (wanted **int32, there int32, selector string) {
	rs := obj.(*appsv1.ReplicaSet)
	return &rs.Spec.Replicas, rs.Status.Replicas, selectorText(rs.Spec.Selector)
}

func replicaSetSpec(spec *appsv1.ReplicaSetSpec, path *field.Path) field.ErrorList {
	errs := check.NilOrNonNegative(path.Child("replicas"), spec.Replicas)
	errs = append(errs, check.NonNegative(path.Child("minReadySeconds"), spec.MinReadySeconds)...)
	errs = append(errs, selectorErrors(spec.Selector, path.Child("selector"), "replicaset")...)
	errs = append(errs, matchErrors(spec.Selector, &spec.Template, path)...)
	errs = append(errs, pod.ValidateTemplate(&spec.Template, path.Child("template"))...)
	return append(errs, runForeverErrors(&spec.Template, path.Child("template"), "ReplicaSet")...)
}

func replicaSetStatus(status *appsv1.ReplicaSetStatus, path *field.Path) field.ErrorList {
	labelled := check.Count{Name: "fullyLabeledReplicas", Value: int64(status.FullyLabeledReplicas)}
	ready := check.Count{Name: "readyReplicas", Value: int64(status.ReadyReplicas)}
	available := check.Count{Name: "availableReplicas", Value: int64(status.AvailableReplicas)}
	errs := check.Counts(path, check.Count{Name: "replicas", Value: int64(status.Replicas)}, labelled, ready, available)
	errs = append(errs, check.NilOrNonNegative(path.Child("terminatingReplicas"), status.TerminatingReplicas)...)
	errs = append(errs, check.NonNegative(path.Child("observedGeneration"), status.ObservedGeneration)...)
	errs = append(errs, check.AtMost(path, status.Replicas, "status.replicas", labelled, ready, available)...)
	return append(errs, check.AtMost(path, status.ReadyReplicas, "readyReplicas", available)...)
}
