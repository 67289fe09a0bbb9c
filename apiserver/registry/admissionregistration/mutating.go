package admissionregistration

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

type (
	mutating        = admissionv1.MutatingAdmissionPolicy
	mutatingBinding = admissionv1.MutatingAdmissionPolicyBinding
)

// mutatingResources returns the kinds of mutating policies.
func mutatingResources() []kind.Resource {
	return []kind.Resource{
		{
			GVR:        client.MutatingAdmissionPolicies,
			Kind:       "MutatingAdmissionPolicy",
			Categories: []string{"api-extensions"},
			New:        func() kind.Object { return new(mutating) },
			Default:    mutatingDefault,
			Prepare: kind.SpecOnly(func(obj kind.Object) *admissionv1.MutatingAdmissionPolicySpec {
				return &obj.(*mutating).Spec
			}, mutatingDefault),
			Validate: mutatingValidate,
			Columns: []table.Column{
				table.Name(),
				table.Count("Mutations", "Mutations indicates the number of mutation rules defined in this configuration",
					func(p *mutating) int { return len(p.Spec.Mutations) }),
				table.Text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy",
					func(p *mutating) string { return paramKind(p.Spec.ParamKind) }),
				table.Age(),
			},
		},
		{
			GVR:        client.MutatingAdmissionPolicyBindings,
			Kind:       "MutatingAdmissionPolicyBinding",
			Categories: []string{"api-extensions"},
			New:        func() kind.Object { return new(mutatingBinding) },
			Default:    mutatingBindingDefault,
			Prepare: kind.SpecOnly(func(obj kind.Object) *admissionv1.MutatingAdmissionPolicyBindingSpec {
				return &obj.(*mutatingBinding).Spec
			}, mutatingBindingDefault),
			Validate: mutatingBindingValidate,
			Columns: bindingColumns(
				func(b *mutatingBinding) string { return b.Spec.PolicyName },
				func(b *mutatingBinding) *admissionv1.ParamRef { return b.Spec.ParamRef }),
		},
	}
}

func mutatingDefault(obj kind.Object) {
	spec := &obj.(*mutating).Spec
	kind.SetIfNil(&spec.FailurePolicy, admissionv1.Fail)
	defaultMatch(spec.MatchConstraints)
}

func mutatingBindingDefault(obj kind.Object) {
	defaultMatch(obj.(*mutatingBinding).Spec.MatchResources)
}

func mutatingValidate(next, cur kind.Object, _ string) field.ErrorList {
	p := next.(*mutating)
	if cur != nil && equality.Semantic.DeepEqual(p.Spec, cur.(*mutating).Spec) {
		return nil
	}
	at := field.NewPath("spec")
	c := (&policySpec{p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints, p.Spec.MatchConditions,
		p.Spec.Variables}).check(at)
	if c.compiler == nil {
		return c.errs
	}
	c.add(mutable(p.Spec.MatchConstraints, at.Child("matchConstraints"))...)
	if len(p.Spec.Mutations) == 0 {
		c.add(field.Required(at.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range p.Spec.Mutations {
		c.mutationErrors(&p.Spec.Mutations[i], at.Child("mutations").Index(i))
	}
	if p.Spec.ReinvocationPolicy == "" {
		c.add(field.Required(at.Child("reinvocationPolicy"), ""))
	} else {
		c.add(OneOf(&p.Spec.ReinvocationPolicy, at.Child("reinvocationPolicy"), admissionv1.IfNeededReinvocationPolicy,
			admissionv1.NeverReinvocationPolicy)...)
	}
	return c.errs
}

// mutable rejects operations without an object that could change.
func mutable(m *admissionv1.MatchResources, at *field.Path) (errs field.ErrorList) {
	if m == nil {
		return nil
	}
	for i := range m.ResourceRules {
		for _, op := range m.ResourceRules[i].Operations {
			errs = append(errs, OneOf(&op, at.Child("resourceRules", "operations"),
				admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Update)...)
		}
	}
	return errs
}

func (c *checks) mutationErrors(m *admissionv1.Mutation, at *field.Path) {
	const apply, json = "applyConfiguration", "jsonPatch"
	switch m.PatchType {
	case "":
		c.add(field.Required(at.Child("patchType"), ""))
	case admissionv1.PatchTypeJSONPatch:
		if m.JSONPatch == nil {
			c.add(field.Required(at.Child(json), "must be specified when patchType is JSONPatch"))
		} else {
			c.patch(&patch.JSONPatchCondition{Expression: strings.TrimSpace(m.JSONPatch.Expression)},
				at.Child(json, "expression"))
		}
		if m.ApplyConfiguration != nil {
			c.add(field.Invalid(at.Child(apply), "{applyConfiguration}", "must not be specified when patchType is JSONPatch"))
		}
	case admissionv1.PatchTypeApplyConfiguration:
		if m.ApplyConfiguration == nil {
			c.add(field.Required(at.Child(apply), "must be specified when patchType is ApplyConfiguration"))
		} else {
			c.patch(&patch.ApplyConfigurationCondition{Expression: strings.TrimSpace(m.ApplyConfiguration.Expression)},
				at.Child(apply, "expression"))
		}
		if m.JSONPatch != nil {
			c.add(field.Invalid(at.Child(json), "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration"))
		}
	default:
		c.add(OneOf(&m.PatchType, at.Child("patchType"), admissionv1.PatchTypeApplyConfiguration,
			admissionv1.PatchTypeJSONPatch)...)
	}
}

func (c *checks) patch(e plugincel.ExpressionAccessor, at *field.Path) {
	if e.GetExpression() == "" {
		c.add(field.Required(at, "expression is not specified"))
		return
	}
	c.compiles(e, c.patches(), at)
}

func mutatingBindingValidate(next, _ kind.Object, _ string) field.ErrorList {
	spec, at := &next.(*mutatingBinding).Spec, field.NewPath("spec")
	errs := bindingErrors(spec.PolicyName, spec.ParamRef, spec.MatchResources, at)
	return append(errs, mutable(spec.MatchResources, at.Child("matchResources"))...)
}
