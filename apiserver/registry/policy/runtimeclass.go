package policy

import (
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
	errs = append(errs, runtimeClassScheduling(class.Scheduling, field.NewPath("scheduling"))...)
	if cur == nil {
		return errs
	}
	return append(errs, check.Immutable(handler, class.Handler, cur.(*nodev1.RuntimeClass).Handler)...)
}

func runtimeClassScheduling(s *nodev1.Scheduling, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := metavalidation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))
	for i := range s.Tolerations {
		path := at.Child("tolerations").Index(i)
		errs = append(errs, pod.TolerationErrors(&s.Tolerations[i], path)...)
		for j := range i {
			if equality.Semantic.DeepEqual(s.Tolerations[i], s.Tolerations[j]) {
				errs = append(errs, field.Duplicate(path, s.Tolerations[i]))
				break
			}
		}
	}
	return errs
}
