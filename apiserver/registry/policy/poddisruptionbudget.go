package policy

import (
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

func podDisruptionBudgetResource() kind.Resource {
	return kind.Resource{
		GVR:          client.PodDisruptionBudgets,
		Kind:         "PodDisruptionBudget",
		Controller:   "disruption",
		Namespaced:   true,
		ShortNames:   []string{"pdb"},
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(policyv1.PodDisruptionBudget) },
		Prepare: kind.SpecAndStatus(
			func(obj kind.Object) (*policyv1.PodDisruptionBudgetSpec, *policyv1.PodDisruptionBudgetStatus) {
				b := obj.(*policyv1.PodDisruptionBudget)
				return &b.Spec, &b.Status
			}, nil),
		Validate: podDisruptionBudgetValidate,
		Columns: []table.Column{
			table.Name(),
			table.Text("Min Available", "Minimum number of available pods.",
				func(b *policyv1.PodDisruptionBudget) string { return orNA(b.Spec.MinAvailable) }),
			table.Text("Max Unavailable", "Maximum number of unavailable pods.",
				func(b *policyv1.PodDisruptionBudget) string { return orNA(b.Spec.MaxUnavailable) }),
			table.Number("Allowed Disruptions", "Number of disruptions that are currently allowed.",
				func(b *policyv1.PodDisruptionBudget) int64 { return int64(b.Status.DisruptionsAllowed) }),
			table.Age(),
		},
	}
}

func orNA(n *intstr.IntOrString) string {
	if n == nil {
		return "N/A"
	}
	return n.String()
}

func podDisruptionBudgetValidate(next, _ kind.Object, subresource string) field.ErrorList {
	b := next.(*policyv1.PodDisruptionBudget)
	if status, path := &b.Status, field.NewPath("status"); subresource == "status" {
		return append(metavalidation.ValidateConditions(status.Conditions, path.Child("conditions")), check.Counts(path,
			check.Count{Name: "disruptionsAllowed", Value: int64(status.DisruptionsAllowed)},
			check.Count{Name: "currentHealthy", Value: int64(status.CurrentHealthy)},
			check.Count{Name: "desiredHealthy", Value: int64(status.DesiredHealthy)},
			check.Count{Name: "expectedPods", Value: int64(status.ExpectedPods)})...)
	}
	spec, path := &b.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "minAvailable and maxUnavailable cannot be both set"))
	}
	return slices.Concat(errs,
		podShare(spec.MinAvailable, path.Child("minAvailable")),
		podShare(spec.MaxUnavailable, path.Child("maxUnavailable")),
		check.LabelSelector(path.Child("selector"), spec.Selector),
		check.NilOr(path.Child("unhealthyPodEvictionPolicy"), spec.UnhealthyPodEvictionPolicy, policyv1.IfHealthyBudget,
			policyv1.AlwaysAllow))
}

func podShare(n *intstr.IntOrString, path *field.Path) field.ErrorList {
	if n == nil {
		return nil
	}
	return append(check.IntOrPercent(path, n), check.AtMostAll(path, n)...)
}
