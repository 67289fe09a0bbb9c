package workload

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/check"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/pod"
	"monopod/apiserver/table"
)

func replicaSetResource() kind.Resource {
	return kind.Resource{
		GVR:          client.ReplicaSets,
		Kind:         "ReplicaSet",
		Namespaced:   true,
		ShortNames:   []string{"rs"},
		Categories:   []string{"all"},
		Subresources: []string{"status", "scale"},
		New:          func() kind.Object { return new(appsv1.ReplicaSet) },
		Default:      replicaSetDefault,
		Prepare:      replicaSetPrepare,
		Validate:     replicaSetValidate,
		Fields: func(obj kind.Object) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(obj.(*appsv1.ReplicaSet).Status.Replicas))}
		},
		Scale:   &kind.Scale{Of: replicaSetScale, Set: replicaSetRescale},
		Columns: replicaSetColumns(),
	}
}

func replicaSetColumns() []table.Column {
	return []table.Column{
		table.Name(),
		table.Number("Desired", "Pods wanted.", replicaSetDesired),
		table.Number("Current", "Pods there are.", func(r *appsv1.ReplicaSet) int64 { return int64(r.Status.Replicas) }),
		table.Number("Ready", "Pods that are ready.", func(r *appsv1.ReplicaSet) int64 { return int64(r.Status.ReadyReplicas) }),
		table.Age(),
		replicaSetContainers("Containers", func(c *corev1.Container) string { return c.Name }),
		replicaSetContainers("Images", func(c *corev1.Container) string { return c.Image }),
		table.Text("Selector", "Which pods belong to it.", func(r *appsv1.ReplicaSet) string {
			return metav1.FormatLabelSelector(r.Spec.Selector)
		}).Wide(),
	}
}

func replicaSetContainers(name string, get func(*corev1.Container) string) table.Column {
	return table.Text(name, "Of the template.", func(r *appsv1.ReplicaSet) string {
		var all []string
		for i := range r.Spec.Template.Spec.Containers {
			all = append(all, get(&r.Spec.Template.Spec.Containers[i]))
		}
		return strings.Join(all, ",")
	}).Wide()
}

func replicaSetDesired(rs *appsv1.ReplicaSet) int64 {
	if rs.Spec.Replicas == nil {
		return 1
	}
	return int64(*rs.Spec.Replicas)
}

func replicaSetDefault(obj kind.Object) {
	rs := obj.(*appsv1.ReplicaSet)
	if rs.Spec.Replicas == nil {
		rs.Spec.Replicas = new(int32(1))
	}
	pod.DefaultTemplate(&rs.Spec.Template)
}

func replicaSetPrepare(next, cur kind.Object, subresource string) {
	rs := next.(*appsv1.ReplicaSet)
	if cur == nil {
		rs.Status, rs.Generation = appsv1.ReplicaSetStatus{}, 1
		return
	}
	old := cur.(*appsv1.ReplicaSet)
	switch subresource {
	case "delete":
		return
	case "status":
		rs.Spec = *old.Spec.DeepCopy()
		return
	}
	rs.Status = *old.Status.DeepCopy()
	replicaSetDefault(rs)
	if !equality.Semantic.DeepEqual(rs.Spec, old.Spec) {
		rs.Generation = old.Generation + 1
	}
}

// replicaSetScale fails to print a selector that is not valid; Validate lets
// none in.
func replicaSetScale(obj kind.Object) *autoscalingv1.Scale {
	rs := obj.(*appsv1.ReplicaSet)
	scale := &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{
			Name: rs.Name, Namespace: rs.Namespace, UID: rs.UID,
			ResourceVersion: rs.ResourceVersion, CreationTimestamp: rs.CreationTimestamp,
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(replicaSetDesired(rs))},
		Status: autoscalingv1.ScaleStatus{Replicas: rs.Status.Replicas},
	}
	if selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector); err == nil {
		scale.Status.Selector = selector.String()
	}
	return scale
}

func replicaSetRescale(obj kind.Object, scale *autoscalingv1.Scale) {
	obj.(*appsv1.ReplicaSet).Spec.Replicas = new(scale.Spec.Replicas)
}

func replicaSetValidate(next, cur kind.Object, subresource string) field.ErrorList {
	rs := next.(*appsv1.ReplicaSet)
	if subresource == "status" {
		return replicaSetStatus(&rs.Status, field.NewPath("status"))
	}
	path := field.NewPath("spec")
	errs := replicaSetSpec(&rs.Spec, path)
	if cur != nil {
		errs = append(errs, check.Immutable(path.Child("selector"), rs.Spec.Selector, cur.(*appsv1.ReplicaSet).Spec.Selector)...)
	}
	return errs
}

func replicaSetSpec(spec *appsv1.ReplicaSetSpec, path *field.Path) field.ErrorList {
	errs := check.NilOrNonNegative(path.Child("replicas"), spec.Replicas)
	errs = append(errs, check.NonNegative(path.Child("minReadySeconds"), spec.MinReadySeconds)...)
	errs = append(errs, replicaSetSelector(spec, path)...)
	return append(errs, replicaSetTemplate(&spec.Template, path.Child("template"))...)
}

// replicaSetSelector wants a selector that picks the template's pods and not
// every pod there is.
func replicaSetSelector(spec *appsv1.ReplicaSetSpec, path *field.Path) field.ErrorList {
	at := path.Child("selector")
	if spec.Selector == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, at)
	if len(spec.Selector.MatchLabels)+len(spec.Selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(at, spec.Selector, "empty selector is invalid for replicaset"))
	}
	if len(errs) > 0 {
		return errs
	}
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	if err != nil {
		return field.ErrorList{field.Invalid(at, spec.Selector, "invalid label selector")}
	}
	if !selector.Matches(labels.Set(spec.Template.Labels)) {
		at = path.Child("template", "metadata", "labels")
		return field.ErrorList{field.Invalid(at, spec.Template.Labels, "`selector` does not match template `labels`")}
	}
	return nil
}

func replicaSetTemplate(template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	spec := path.Child("spec")
	errs := pod.ValidateTemplate(template, path)
	if template.Spec.RestartPolicy != corev1.RestartPolicyAlways && template.Spec.RestartPolicy != "" {
		errs = append(errs, field.NotSupported(spec.Child("restartPolicy"), template.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if template.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(spec.Child("activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicaSet is not Supported"))
	}
	return errs
}

func replicaSetStatus(status *appsv1.ReplicaSetStatus, path *field.Path) field.ErrorList {
	errs := check.NonNegative(path.Child("replicas"), status.Replicas)
	errs = append(errs, check.NonNegative(path.Child("fullyLabeledReplicas"), status.FullyLabeledReplicas)...)
	errs = append(errs, check.NonNegative(path.Child("readyReplicas"), status.ReadyReplicas)...)
	errs = append(errs, check.NonNegative(path.Child("availableReplicas"), status.AvailableReplicas)...)
	errs = append(errs, check.NilOrNonNegative(path.Child("terminatingReplicas"), status.TerminatingReplicas)...)
	errs = append(errs, check.NonNegative(path.Child("observedGeneration"), status.ObservedGeneration)...)
	errs = append(errs, countAtMost(path, "fullyLabeledReplicas", status.FullyLabeledReplicas, "replicas", status.Replicas)...)
	errs = append(errs, countAtMost(path, "readyReplicas", status.ReadyReplicas, "replicas", status.Replicas)...)
	errs = append(errs, countAtMost(path, "availableReplicas", status.AvailableReplicas, "replicas", status.Replicas)...)
	return append(errs, countAtMost(path, "availableReplicas", status.AvailableReplicas, "readyReplicas", status.ReadyReplicas)...)
}

func countAtMost(path *field.Path, name string, count int32, of string, limit int32) field.ErrorList {
	if count <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child(name), count, "cannot be greater than status."+of)}
}
