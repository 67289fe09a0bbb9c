package workload

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/apiserver/registry/pod"
)

func daemonSetResource() kind.Resource {
	return kind.Resource{
		GVR:          client.DaemonSets,
		Kind:         "DaemonSet",
		Controller:   "daemonset",
		Namespaced:   true,
		ShortNames:   []string{"ds"},
		Categories:   []string{"all"},
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(appsv1.DaemonSet) },
		Default:      daemonSetDefault,
		Prepare:      daemonSetPrepare,
		Validate: withSelector(daemonSetHalves, daemonSetSpec, daemonSetStatus,
			func(s *appsv1.DaemonSetSpec) *metav1.LabelSelector { return s.Selector }),
		Warnings: func(next, cur kind.Object) []string {
			return templateWarnings(next, cur, &next.(*appsv1.DaemonSet).Spec.Template)
		},
		Columns: daemonSetColumns(),
	}
}

func daemonSetHalves(obj kind.Object) (*appsv1.DaemonSetSpec, *appsv1.DaemonSetStatus) {
	ds := obj.(*appsv1.DaemonSet)
	return &ds.Spec, &ds.Status
}

func daemonSetColumns() []table.Column {
	number := func(name, description string, of func(*appsv1.DaemonSetStatus) int32) table.Column {
		return table.Number(name, description, func(d *appsv1.DaemonSet) int64 { return int64(of(&d.Status)) })
	}
	return pod.OwnerColumns([]table.Column{
		table.Name(),
		number("Desired", "Nodes that should run the pod.",
			func(s *appsv1.DaemonSetStatus) int32 { return s.DesiredNumberScheduled }),
		number("Current", "Nodes that run the pod and should.",
			func(s *appsv1.DaemonSetStatus) int32 { return s.CurrentNumberScheduled }),
		number("Ready", "Nodes whose pod is ready.", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberReady }),
		number("Up-to-date", "Nodes whose pod has the newest template.",
			func(s *appsv1.DaemonSetStatus) int32 { return s.UpdatedNumberScheduled }),
		number("Available", "Nodes whose pod has been ready for minReadySeconds.",
			func(s *appsv1.DaemonSetStatus) int32 { return s.NumberAvailable }),
		table.Text("Node Selector", "Node selector of the pods.", func(d *appsv1.DaemonSet) string {
			return labels.FormatLabels(d.Spec.Template.Spec.NodeSelector)
		}),
		table.Age(),
	}, func(d *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &d.Spec.Template },
		func(d *appsv1.DaemonSet) string { return metav1.FormatLabelSelector(d.Spec.Selector) })
}

// daemonSetDefault implements upstream's SetDefaults_DaemonSet of apps/v1.
func daemonSetDefault(obj kind.Object) {
	ds := obj.(*appsv1.DaemonSet)
	strategy := &ds.Spec.UpdateStrategy
	kind.SetIfZero(&strategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if strategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		kind.SetIfNil(&strategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		kind.SetIfNil(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		kind.SetIfNil(&strategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	kind.SetIfNil(&ds.Spec.RevisionHistoryLimit, 10)
	pod.DefaultTemplate(&ds.Spec.Template)
}

// daemonSetPrepare also counts the changes of the template in the annotation that has replaced spec.templateGeneration.
// Clients cannot change it.
func daemonSetPrepare(next, cur kind.Object, subresource string) {
	kind.SpecAndStatus(daemonSetHalves, daemonSetDefault)(next, cur, subresource)
	ds, count := next.(*appsv1.DaemonSet), int64(1)
	if cur != nil {
		old := cur.(*appsv1.DaemonSet)
		if n, err := strconv.ParseInt(old.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64); err == nil {
			count = max(1, n)
		}
		if subresource == "" && !equality.Semantic.DeepEqual(ds.Spec.Template, old.Spec.Template) {
			count++
		}
	}
	metav1.SetMetaDataAnnotation(&ds.ObjectMeta, appsv1.DeprecatedTemplateGeneration, strconv.FormatInt(count, 10))
}

// daemonSetSpec reports a missing selector only as one that does not match the template, as upstream does.
func daemonSetSpec(spec *appsv1.DaemonSetSpec, path *field.Path) field.ErrorList {
	at := path.Child("selector")
	errs := check.LabelSelector(at, spec.Selector)
	if len(errs) == 0 {
		errs = append(errs, matchErrors(spec.Selector, &spec.Template, path)...)
	}
	if s := spec.Selector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(at, s, "empty selector is invalid for daemonset"))
	}
	errs = slices.Concat(errs,
		pod.ValidateTemplate(&spec.Template, path.Child("template")),
		runForeverErrors(&spec.Template, path.Child("template"), "DaemonSet"),
		check.NonNegative(path.Child("minReadySeconds"), spec.MinReadySeconds))
	if s, at := &spec.UpdateStrategy, path.Child("updateStrategy"); s.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		errs = append(errs, daemonSetRolling(s.RollingUpdate, at.Child("rollingUpdate"))...)
	} else {
		errs = append(errs, check.UnsetOr(at, s.Type, appsv1.RollingUpdateDaemonSetStrategyType,
			appsv1.OnDeleteDaemonSetStrategyType)...)
	}
	return append(errs, check.NilOrNonNegative(path.Child("revisionHistoryLimit"), spec.RevisionHistoryLimit)...)
}

// daemonSetRolling requires exactly one of maxUnavailable and maxSurge: a node either loses its old pod first or gets
// the new one first.
func daemonSetRolling(r *appsv1.RollingUpdateDaemonSet, path *field.Path) field.ErrorList {
	unavailable, surge := path.Child("maxUnavailable"), path.Child("maxSurge")
	errs := check.IntOrPercent(unavailable, r.MaxUnavailable)
	errs = append(errs, check.IntOrPercent(surge, r.MaxSurge)...)
	errs = append(errs, check.AtMostAll(unavailable, r.MaxUnavailable)...)
	errs = append(errs, check.AtMostAll(surge, r.MaxSurge)...)
	switch hasUnavailable, hasSurge := !check.IsNothing(r.MaxUnavailable), !check.IsNothing(r.MaxSurge); {
	case hasUnavailable && hasSurge:
		errs = append(errs, field.Invalid(surge, r.MaxSurge.String(), "may not be set when maxUnavailable is non-zero"))
	case !hasUnavailable && !hasSurge:
		errs = append(errs, field.Required(unavailable, "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func daemonSetStatus(status, old *appsv1.DaemonSetStatus, path *field.Path) field.ErrorList {
	errs := check.Counts(path,
		check.Count{Name: "currentNumberScheduled", Value: int64(status.CurrentNumberScheduled)},
		check.Count{Name: "numberMisscheduled", Value: int64(status.NumberMisscheduled)},
		check.Count{Name: "desiredNumberScheduled", Value: int64(status.DesiredNumberScheduled)},
		check.Count{Name: "numberReady", Value: int64(status.NumberReady)},
		check.Count{Name: "observedGeneration", Value: status.ObservedGeneration},
		check.Count{Name: "updatedNumberScheduled", Value: int64(status.UpdatedNumberScheduled)},
		check.Count{Name: "numberAvailable", Value: int64(status.NumberAvailable)},
		check.Count{Name: "numberUnavailable", Value: int64(status.NumberUnavailable)},
	)
	return append(errs, check.NonDecreasing(path.Child("collisionCount"), status.CollisionCount, old.CollisionCount)...)
}
