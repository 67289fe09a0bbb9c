// Package admissionregistration contains the kinds that configure admission: webhooks and policies of CEL expressions.
// The packages webhooks and policies below admission apply them. typecheck.go checks the expressions of a
// ValidatingAdmissionPolicy against the schemas of the kinds that it matches; its warnings go to the policy's status
// and never reject the policy.
package admissionregistration

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

type (
	policy  = admissionv1.ValidatingAdmissionPolicy
	binding = admissionv1.ValidatingAdmissionPolicyBinding
)

// Resources returns the kinds that configure admission: webhooks and policies.
func Resources() []kind.Resource {
	return slices.Concat(webhookResources(), validatingResources(), mutatingResources())
}

func validatingResources() []kind.Resource {
	return []kind.Resource{
		{
			GVR:          client.ValidatingAdmissionPolicies,
			Kind:         "ValidatingAdmissionPolicy",
			Categories:   []string{"api-extensions"},
			Subresources: kind.Parts("status"),
			New:          func() kind.Object { return new(policy) },
			Default:      policyDefault,
			Prepare:      policyPrepare,
			Validate:     policyValidate,
			Columns: []table.Column{
				table.Name(),
				table.Count("Validations", "Validations indicates the number of validation rules defined in this configuration",
					func(p *policy) int { return len(p.Spec.Validations) }),
				table.Text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy",
					func(p *policy) string { return paramKind(p.Spec.ParamKind) }),
				table.Age(),
			},
		},
		{
			GVR:        client.ValidatingAdmissionPolicyBindings,
			Kind:       "ValidatingAdmissionPolicyBinding",
			Categories: []string{"api-extensions"},
			New:        func() kind.Object { return new(binding) },
			Default:    bindingDefault,
			Prepare: kind.SpecOnly(func(obj kind.Object) *admissionv1.ValidatingAdmissionPolicyBindingSpec {
				return &obj.(*binding).Spec
			}, bindingDefault),
			Validate: bindingValidate,
			Columns: bindingColumns(
				func(b *binding) string { return b.Spec.PolicyName },
				func(b *binding) *admissionv1.ParamRef { return b.Spec.ParamRef }),
		},
	}
}

// bindingColumns returns the columns of a kind of binding.
func bindingColumns[T kind.Object](policy func(T) string, params func(T) *admissionv1.ParamRef) []table.Column {
	return []table.Column{
		table.Name(),
		table.Text("PolicyName", "PolicyName indicates the policy definition which the policy binding is for", policy),
		table.Text("ParamRef", "ParamRef indicates the param resource which sets the configuration param",
			func(b T) string { return paramRef(params(b)) }),
		table.Age(),
	}
}

func paramKind(k *admissionv1.ParamKind) string {
	if k == nil {
		return "<unset>"
	}
	return k.APIVersion + "/" + k.Kind
}

func paramRef(ref *admissionv1.ParamRef) string {
	switch {
	case ref == nil:
		return "<unset>"
	case ref.Name == "" && ref.Selector != nil:
		return metav1.FormatLabelSelector(ref.Selector)
	case ref.Namespace == "":
		return "*/" + ref.Name
	}
	return ref.Namespace + "/" + ref.Name
}

// policyDefault sets upstream's defaults (pkg/apis/admissionregistration/v1/defaults.go).
func policyDefault(obj kind.Object) {
	spec := &obj.(*policy).Spec
	kind.SetIfNil(&spec.FailurePolicy, admissionv1.Fail)
	defaultMatch(spec.MatchConstraints)
}

func bindingDefault(obj kind.Object) { defaultMatch(obj.(*binding).Spec.MatchResources) }

func defaultMatch(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	kind.SetIfNil(&m.MatchPolicy, admissionv1.Equivalent)
	kind.SetIfNil(&m.NamespaceSelector, metav1.LabelSelector{})
	kind.SetIfNil(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			kind.SetIfNil(&rules[i].Scope, admissionv1.AllScopes)
		}
	}
}

// prepared keeps a write of the spec from changing the status, and vice versa.
var prepared = kind.SpecAndStatus(
	func(obj kind.Object) (*admissionv1.ValidatingAdmissionPolicySpec, *admissionv1.ValidatingAdmissionPolicyStatus) {
		p := obj.(*policy)
		return &p.Spec, &p.Status
	}, policyDefault)

// policyPrepare sets observedGeneration at once, because a policy is compiled before it is stored.
func policyPrepare(next, cur kind.Object, subresource string) {
	prepared(next, cur, subresource)
	if p := next.(*policy); subresource == "" {
		p.Status.ObservedGeneration = p.Generation
	}
}
