package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"monopod/apiserver/audit"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/admissionregistration"
	"monopod/apiserver/registry/kind"
)

// decision is the result of one validation.
type decision struct {
	denied  bool
	message string
	reason  metav1.StatusReason // empty: an expression failed
}

// annotation is one audit annotation of a policy.
type annotation struct{ key, value string }

// evaluation is the result of a policy for a request with one object of parameters.
type evaluation struct {
	decisions        []decision // one for each validation
	annotations      []annotation
	annotationErrors []error
}

// validate implements admission.Plugin. It evaluates all policies; the first denial becomes the error.
func (p *Policies) validate(ctx context.Context, r *admission.Request) error {
	now := p.validating.bound.Load()
	if now == nil || r.PartOf != "" || match.Exempt(ctx, r) {
		return nil
	}
	v := &validation{matcher: p.newMatcher(r, false)}
	for _, policy := range *now {
		if err := v.evaluatePolicy(ctx, policy); err != nil {
			return err
		}
	}
	return v.err(ctx)
}

// validation is one request with the results of its validating policies.
type validation struct {
	matcher
	outcome
}

// evaluatePolicy collects the results of a policy. It returns an error if the request itself fails.
func (v *validation) evaluatePolicy(ctx context.Context, p *policy[*admissionregistration.Expressions]) error {
	res, err := v.matchingVersion(ctx, p.match, &p.selectors)
	if err == nil && res == nil {
		return nil
	}
	var expressions *admissionregistration.Expressions
	if err == nil {
		expressions, err = p.compiled()
	}
	if err != nil {
		v.misconfigured(&p.policyMeta, nil, err)
		return nil
	}
	notes := map[string][]string{} // audit annotations of the policy: the distinct values of each key
	for _, b := range p.bindings {
		if err := v.evaluateBinding(ctx, &p.policyMeta, b, res, expressions, notes); err != nil {
			return err
		}
	}
	for key, values := range notes {
		audit.Of(ctx).Annotate(p.name+"/"+key, strings.Join(values, ", "))
	}
	return nil
}

// evaluateBinding collects the results of a policy for one binding, one for each object of parameters.
func (v *validation) evaluateBinding(ctx context.Context, p *policyMeta, b *binding, res *kind.Resource,
	e *admissionregistration.Expressions, notes map[string][]string) error {
	all, err := v.paramsFor(ctx, p, b)
	if err != nil {
		v.misconfigured(p, b, err)
	}
	if len(all) == 0 {
		return nil
	}
	namespace, err := v.namespaceObject(ctx)
	if err != nil {
		return err
	}
	for _, params := range all {
		result := v.evaluate(ctx, p, e, res, params, namespace)
		for i, d := range result.decisions {
			if d.denied {
				v.applyActions(p, b, i, d)
			}
		}
		for _, err := range result.annotationErrors { // denies whatever the binding's actions are
			if !p.ignores() {
				v.deny(denial{source: sourceOf(p, b), message: err.Error()})
			}
		}
		for _, one := range result.annotations {
			value := one.value[:min(len(one.value), maxAnnotationValue)]
			if !slices.Contains(notes[one.key], value) {
				notes[one.key] = append(notes[one.key], value)
			}
		}
	}
	return nil
}

// evaluate evaluates the policy with one object of parameters.
func (v *validation) evaluate(ctx context.Context, p *policyMeta, e *admissionregistration.Expressions,
	res *kind.Resource, params runtime.Object, namespace *corev1.Namespace) evaluation {
	in, err := v.Input(ctx, res, params, namespace)
	if err != nil {
		return p.failedEvaluation(fmt.Errorf("failed to convert object version: %w", err))
	}
	if len(e.Spec.MatchConditions) > 0 {
		if ok, err := in.MeetsConditions(ctx, e.Conditions); err != nil {
			return p.failedEvaluation(err)
		} else if !ok {
			return evaluation{}
		}
	}
	results, left, err := in.Evaluate(ctx, e.Validations, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return p.failedEvaluation(err)
	}
	messages, _, err := in.Evaluate(ctx, e.Messages, left)
	if !errors.Is(err, apiservercel.ErrInternal) && !errors.Is(err, apiservercel.ErrOutOfBudget) {
		err = nil // without messages, the static ones apply
	}
	result := evaluation{decisions: make([]decision, len(results))}
	for i, r := range results {
		switch {
		case r.Error != nil:
			result.decisions[i] = p.failedDecision(r.Error)
		case err != nil:
			result.decisions[i] = p.failedDecision(fmt.Errorf("failed messageExpression: %w", err))
		case r.EvalResult != types.True:
			result.decisions[i] = falseDecision(&e.Spec.Validations[i], messages, i)
		}
	}
	notes, _, err := in.Evaluate(ctx, e.Annotations, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return p.failedEvaluation(err)
	}
	for i, r := range notes {
		if r.Error != nil {
			result.annotationErrors = append(result.annotationErrors, r.Error)
		} else if text, _ := r.EvalResult.Value().(string); strings.TrimSpace(text) != "" {
			result.annotations = append(result.annotations, annotation{e.Spec.AuditAnnotations[i].Key, strings.TrimSpace(text)})
		}
	}
	return result
}

// failedEvaluation is the result of a policy that failed as a whole.
func (p *policyMeta) failedEvaluation(err error) evaluation {
	return evaluation{decisions: []decision{p.failedDecision(err)}}
}

// failedDecision is the result of an expression that failed to evaluate.
func (p *policyMeta) failedDecision(err error) decision {
	return decision{denied: !p.ignores(), message: err.Error()}
}

// falseDecision is the result of a validation that is false. Its message is the result of messageExpression if that is
// valid, or else the message, or else the expression.
func falseDecision(v *admissionv1.Validation, messages []plugincel.EvaluationResult, i int) decision {
	d := decision{denied: true, reason: metav1.StatusReasonInvalid}
	if v.Reason != nil {
		d.reason = *v.Reason
	}
	if i < len(messages) && messages[i].Error == nil && messages[i].EvalResult != nil {
		text, _ := messages[i].EvalResult.Value().(string)
		if text = strings.TrimSpace(text); len(text) <= celconfig.MaxEvaluatedMessageExpressionSizeBytes &&
			!strings.Contains(text, "\n") {
			d.message = text
		}
	}
	if d.message == "" {
		d.message = strings.TrimSpace(v.Message)
	}
	if d.message == "" {
		d.message = "failed expression: " + strings.TrimSpace(v.Expression)
	}
	return d
}
