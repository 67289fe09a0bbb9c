package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/apiserver/registry/pod"
)

func runtimeClassResource() kind.Resource {
	return kind.Resource{
		GVR:      client.RuntimeClasses,
		Kind:     "RuntimeClass",
		New:      func() kind.Object { return new(nodev1.RuntimeClass) },
		Validate: runtimeClassValidate,
		Columns: []table.Column{
			table.Name(),
			table.Text("Handler", "Name of the handler in the runtime's configuration.",
				func(c *nodev1.RuntimeClass) string { return c.Handler }),
			table.Age(),
		},
	}
}

func runtimeClassValidate(next, cur kind.Object, _ string) field.ErrorList {
	class, handler := next.(*nodev1.RuntimeClass), field.NewPath("handler")
	errs := check.Invalid(handler, class.Handler, apivalidation.NameIsDNSLabel(class.Handler, false))
	if class.Overhead != nil {
		errs = append(errs, pod.LimitErrors(class.Overhead.PodFixed, field.NewPath("overhead"))...)
	}
	if s, at := class.Scheduling, field.NewPath("scheduling"); s != nil {
		errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
		for i := range s.Tolerations {
			path := at.Child("tolerations").Index(i)
			errs = append(errs, pod.TolerationErrors(&s.Tolerations[i], path)...)
			if slices.ContainsFunc(s.Tolerations[:i], func(t corev1.Toleration) bool {
				return equality.Semantic.DeepEqual(s.Tolerations[i], t)
			}) {
				errs = append(errs, field.Duplicate(path, s.Tolerations[i]))
			}
		}
	}
	if cur == nil {
		return errs
	}
	return append(errs, check.Immutable(handler, class.Handler, cur.(*nodev1.RuntimeClass).Handler)...)
}
