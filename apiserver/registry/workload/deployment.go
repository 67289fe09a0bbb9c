package workload

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/apiserver/registry/pod"
)

func deploymentResource() kind.Resource {
	return kind.Resource{
		GVR:          client.Deployments,
		Kind:         "Deployment",
		Controller:   "deployment",
		Namespaced:   true,
		ShortNames:   []string{"deploy"},
		Categories:   []string{"all"},
		Subresources: append(kind.Parts("status"), kind.ScalePart(scales(deploymentScale))),
		New:          func() kind.Object { return new(appsv1.Deployment) },
		Default:      deploymentDefault,
		Prepare:      deploymentPrepare,
		Validate: withSelector(deploymentHalves, deploymentSpec, deploymentStatus,
			func(s *appsv1.DeploymentSpec) *metav1.LabelSelector { return s.Selector }),
		Warnings: func(next, cur kind.Object) []string {
			return podsWarnings(next, cur, &next.(*appsv1.Deployment).Spec.Template)
		},
		Columns: deploymentColumns(),
	}
}

func deploymentHalves(obj kind.Object) (*appsv1.DeploymentSpec, *appsv1.DeploymentStatus) {
	d := obj.(*appsv1.Deployment)
	return &d.Spec, &d.Status
}

func deploymentColumns() []table.Column {
	return pod.OwnerColumns([]table.Column{
		table.Name(),
		table.Text("Ready", "Ready pods and desired pods.", func(d *appsv1.Deployment) string {
			return fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 1))
		}),
		table.Count("Up-to-date", "Pods with the newest template.",
			func(d *appsv1.Deployment) int { return int(d.Status.UpdatedReplicas) }),
		table.Count("Available", "Pods that have been ready for minReadySeconds.",
			func(d *appsv1.Deployment) int { return int(d.Status.AvailableReplicas) }),
		table.Age(),
	}, func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template },
		func(d *appsv1.Deployment) string { return selectorText(d.Spec.Selector) })
}

// deploymentDefault implements upstream's SetDefaults_Deployment of apps/v1.
func deploymentDefault(obj kind.Object) {
	d := obj.(*appsv1.Deployment)
	kind.SetIfNil(&d.Spec.Replicas, 1)
	kind.SetIfZero(&d.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		rolling := &d.Spec.Strategy.RollingUpdate
		kind.SetIfNil(rolling, appsv1.RollingUpdateDeployment{})
		kind.SetIfNil(&(*rolling).MaxUnavailable, intstr.FromString("25%"))
		kind.SetIfNil(&(*rolling).MaxSurge, intstr.FromString("25%"))
	}
	kind.SetIfNil(&d.Spec.RevisionHistoryLimit, 10)
	kind.SetIfNil(&d.Spec.ProgressDeadlineSeconds, 600)
	pod.DefaultTemplate(&d.Spec.Template)
}

// deploymentPrepare also increments the generation when annotations change, because they are copied to the ReplicaSets.
// A write of the status does not change labels.
func deploymentPrepare(next, cur kind.Object, subresource string) {
	kind.SpecAndStatus(deploymentHalves, deploymentDefault)(next, cur, subresource)
	switch {
	case cur == nil:
	case subresource == "status":
		next.SetLabels(maps.Clone(cur.GetLabels()))
	case subresource == "" && !maps.Equal(next.GetAnnotations(), cur.GetAnnotations()):
		next.SetGeneration(cur.GetGeneration() + 1)
	}
}

func deploymentScale(obj kind.Object) (wanted **int32, there int32, selector string) {
	d := obj.(*appsv1.Deployment)
	return &d.Spec.Replicas, d.Status.Replicas, selectorText(d.Spec.Selector)
}

func deploymentSpec(spec *appsv1.DeploymentSpec, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		check.NilOrNonNegative(path.Child("replicas"), spec.Replicas),
		selectorErrors(spec.Selector, path.Child("selector"), "deployment"),
		matchErrors(spec.Selector, &spec.Template, path),
		pod.ValidateTemplate(&spec.Template, path.Child("template")),
		runForeverErrors(&spec.Template, path.Child("template"), "ReplicaSet"))
	s, strategy := &spec.Strategy, path.Child("strategy")
	switch rolling := strategy.Child("rollingUpdate"); s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			errs = append(errs, field.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'"))
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		errs = append(errs, deploymentRolling(s.RollingUpdate, rolling)...)
	default:
		errs = append(errs, check.UnsetOr(strategy, s.Type, appsv1.RecreateDeploymentStrategyType,
			appsv1.RollingUpdateDeploymentStrategyType)...)
	}
	errs = append(errs, check.NonNegative(path.Child("minReadySeconds"), spec.MinReadySeconds)...)
	errs = append(errs, check.NilOrNonNegative(path.Child("revisionHistoryLimit"), spec.RevisionHistoryLimit)...)
	if n, at := spec.ProgressDeadlineSeconds, path.Child("progressDeadlineSeconds"); n != nil {
		errs = append(errs, check.NonNegative(at, *n)...)
		if *n <= spec.MinReadySeconds {
			errs = append(errs, field.Invalid(at, *n, "must be greater than minReadySeconds"))
		}
	}
	return errs
}

// deploymentRolling requires maxUnavailable or maxSurge: with neither, a rollout cannot progress.
func deploymentRolling(r *appsv1.RollingUpdateDeployment, path *field.Path) field.ErrorList {
	unavailable, surge := path.Child("maxUnavailable"), path.Child("maxSurge")
	errs := check.IntOrPercent(unavailable, r.MaxUnavailable)
	errs = append(errs, check.IntOrPercent(surge, r.MaxSurge)...)
	if check.IsNothing(r.MaxUnavailable) && check.IsNothing(r.MaxSurge) {
		errs = append(errs, field.Invalid(unavailable, r.MaxUnavailable.String(), "may not be 0 when `maxSurge` is 0"))
	}
	return append(errs, check.AtMostAll(unavailable, r.MaxUnavailable)...)
}

func deploymentStatus(status, old *appsv1.DeploymentStatus, path *field.Path) field.ErrorList {
	updated := check.Count{Name: "updatedReplicas", Value: int64(status.UpdatedReplicas)}
	ready := check.Count{Name: "readyReplicas", Value: int64(status.ReadyReplicas)}
	available := check.Count{Name: "availableReplicas", Value: int64(status.AvailableReplicas)}
	errs := check.Counts(path, check.Count{Name: "observedGeneration", Value: status.ObservedGeneration},
		check.Count{Name: "replicas", Value: int64(status.Replicas)}, updated, ready, available,
		check.Count{Name: "unavailableReplicas", Value: int64(status.UnavailableReplicas)})
	errs = append(errs, check.NilOrNonNegative(path.Child("terminatingReplicas"), status.TerminatingReplicas)...)
	errs = append(errs, check.NonDecreasing(path.Child("collisionCount"), status.CollisionCount, old.CollisionCount)...)
	errs = append(errs, check.AtMost(path, status.Replicas, "status.replicas", updated, ready, available)...)
	return append(errs, check.AtMost(path, status.ReadyReplicas, "readyReplicas", available)...)
}
