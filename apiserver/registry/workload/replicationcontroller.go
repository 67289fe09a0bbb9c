package workload

import (
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/apiserver/registry/pod"
)

func replicationControllerResource() kind.Resource {
	return kind.Resource{
		GVR:          client.ReplicationControllers,
		Kind:         "ReplicationController",
		Controller:   "replicationcontroller",
		Namespaced:   true,
		ShortNames:   []string{"rc"},
		Categories:   []string{"all"},
		Subresources: append(kind.Parts("status"), kind.ScalePart(scales(replicationControllerScale))),
		New:          func() kind.Object { return new(corev1.ReplicationController) },
		Default:      replicationControllerDefault,
		Prepare:      kind.SpecAndStatus(replicationControllerHalves, replicationControllerDefault),
		Validate:     replicationControllerValidate,
		Orphans:      true,
		Warnings: func(next, cur kind.Object) []string {
			return podsWarnings(next, cur, next.(*corev1.ReplicationController).Spec.Template)
		},
		Fields: func(obj kind.Object) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(obj.(*corev1.ReplicationController).Status.Replicas))}
		},
		Columns: replicationControllerColumns(),
	}
}

func replicationControllerHalves(
	obj kind.Object) (*corev1.ReplicationControllerSpec, *corev1.ReplicationControllerStatus) {
	rc := obj.(*corev1.ReplicationController)
	return &rc.Spec, &rc.Status
}

func replicationControllerColumns() []table.Column {
	return replicaColumns(
		func(r *corev1.ReplicationController) replicas {
			return replicas{r.Spec.Replicas, r.Status.Replicas, r.Status.ReadyReplicas}
		},
		func(r *corev1.ReplicationController) *corev1.PodTemplateSpec { return r.Spec.Template },
		func(r *corev1.ReplicationController) string { return labels.FormatLabels(r.Spec.Selector) })
}

// replicationControllerDefault implements upstream's SetDefaults_ReplicationController: the template's labels are the
// default of the selector and of the labels.
func replicationControllerDefault(obj kind.Object) {
	rc := obj.(*corev1.ReplicationController)
	kind.SetIfNil(&rc.Spec.Replicas, 1)
	template := rc.Spec.Template
	if template == nil {
		return
	}
	if len(rc.Spec.Selector) == 0 {
		rc.Spec.Selector = maps.Clone(template.Labels)
	}
	if len(rc.Labels) == 0 {
		rc.Labels = maps.Clone(template.Labels)
	}
	pod.DefaultTemplate(template)
}

func replicationControllerScale(obj kind.Object) (wanted **int32, there int32, selector string) {
	rc := obj.(*corev1.ReplicationController)
	return &rc.Spec.Replicas, rc.Status.Replicas, labels.Set(rc.Spec.Selector).AsSelector().String()
}

func replicationControllerValidate(next, _ kind.Object, subresource string) field.ErrorList {
	rc := next.(*corev1.ReplicationController)
	if status := &rc.Status; subresource == "status" { // the rules for ReplicaSets
		return replicaSetStatus(&appsv1.ReplicaSetStatus{
			Replicas:             status.Replicas,
			FullyLabeledReplicas: status.FullyLabeledReplicas,
			ReadyReplicas:        status.ReadyReplicas,
			AvailableReplicas:    status.AvailableReplicas,
			ObservedGeneration:   status.ObservedGeneration,
		}, field.NewPath("status"))
	}
	spec, path := &rc.Spec, field.NewPath("spec")
	errs := check.NonNegative(path.Child("minReadySeconds"), spec.MinReadySeconds)
	if len(spec.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	errs = append(errs, check.NilOrNonNegative(path.Child("replicas"), spec.Replicas)...)
	at := path.Child("template")
	if spec.Template == nil {
		return append(errs, field.Required(at, ""))
	}
	errs = append(errs, labelErrors(labels.Set(spec.Selector).AsSelectorPreValidated(), spec.Template, at)...)
	errs = append(errs, pod.ValidateTemplate(spec.Template, at)...)
	return append(errs, runForeverErrors(spec.Template, at, "ReplicationController")...)
}
