package policies

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/admissionpolicy"
	"monopod/apiserver/registry/kind"
)

// decision is what one validation says.
type decision struct {
	denied  bool
	message string
	reason  metav1.StatusReason // empty: an expression failed
}

// annotation is one audit annotation of a policy.
type annotation struct{ key, value string }

// verdict is what a policy says about a request, with one object of parameters.
type verdict struct {
	decisions   []decision // of the validations
	annotations []annotation
	broken      []error // annotations that could not be evaluated
}

// validate is Validate of the plugin. Every policy has its say, and the first denial is the answer.
func (p *Policies) validate(ctx context.Context, r *admission.Request) error {
	now := p.now.Load()
	if now == nil || r.Part != "" || match.Exempt(ctx, r) {
		return nil
	}
	v := &visit{Policies: p, Request: match.New(&p.cfg.Config, r, false)}
	for _, policy := range *now {
		if err := v.policy(ctx, policy); err != nil {
			return err
		}
	}
	return v.end(ctx)
}

// visit is one request on its way past the policies.
type visit struct {
	*Policies
	*match.Request
	outcome
}

// policy collects what a policy says. The error is that of a request that cannot be judged at all.
func (v *visit) policy(ctx context.Context, p *policy) error {
	res, err := v.concerned(ctx, p.Spec.MatchConstraints, &p.selectors)
	if err != nil {
		v.misconfigured(p, nil, err)
		return nil
	}
	if res == nil {
		return nil
	}
	expressions, err := p.compiled()
	if err != nil {
		v.misconfigured(p, nil, err)
		return nil
	}
	notes := annotations{}
	for _, b := range p.bindings {
		if err := v.binding(ctx, p, b, res, expressions, notes); err != nil {
			return err
		}
	}
	notes.publish(ctx, p.Name)
	return nil
}

// concerned returns the version in which a policy or a binding concerns the request; nil: it does not.
func (v *visit) concerned(ctx context.Context, m *admissionv1.MatchResources, s *match.Selectors) (*kind.Resource, error) {
	if m == nil {
		return v.Requested, nil
	}
	res := v.Requested
	if len(m.ResourceRules) > 0 {
		res = v.Ruled(m.ResourceRules, m.MatchPolicy)
	}
	if res == nil || v.Ruled(m.ExcludeResourceRules, m.MatchPolicy) != nil {
		return nil, nil
	}
	if ok, err := v.Selected(ctx, s); err != nil || !ok {
		return nil, err
	}
	return res, nil
}

// binding collects what a policy says for one binding, once for each object that parameterizes it.
func (v *visit) binding(ctx context.Context, p *policy, b *binding, res *kind.Resource, e *admissionpolicy.Expressions, notes annotations) error {
	if of, err := v.concerned(ctx, b.Spec.MatchResources, &b.selectors); err != nil || of == nil {
		if err != nil {
			v.misconfigured(p, b, err)
		}
		return nil
	}
	all, err := v.params(ctx, p.Spec.ParamKind, b.Spec.ParamRef)
	if err != nil {
		v.misconfigured(p, b, err)
		return nil
	}
	var namespace *corev1.Namespace
	if v.Request.Namespace != "" && v.R.Resource.GVR != client.Namespaces {
		if namespace, err = v.NamespaceObject(ctx); err != nil {
			return err
		}
	}
	for _, params := range all {
		says := v.evaluate(ctx, p, e, res, params, namespace)
		for i, d := range says.decisions {
			if d.denied {
				v.denied(p, b, i, d)
			}
		}
		for _, err := range says.broken { // denied, whatever the binding wants
			if !p.ignores() {
				v.deny(denial{by: source(p, b), message: err.Error()})
			}
		}
		notes.add(says.annotations)
	}
	return nil
}

// evaluate evaluates the policy with one object of parameters.
func (v *visit) evaluate(ctx context.Context, p *policy, e *admissionpolicy.Expressions, res *kind.Resource, params runtime.Object, namespace *corev1.Namespace) verdict {
	in, err := v.Input(ctx, res, params, namespace)
	if err != nil {
		return p.failure(fmt.Errorf("failed to convert object version: %w", err))
	}
	if len(p.Spec.MatchConditions) > 0 {
		if ok, err := in.Meets(ctx, e.Conditions); err != nil {
			return p.failure(err)
		} else if !ok {
			return verdict{}
		}
	}
	results, left, err := in.Evaluate(ctx, e.Validations, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return p.failure(err)
	}
	messages, _, err := in.Evaluate(ctx, e.Messages, left)
	if !errors.Is(err, apiservercel.ErrInternal) && !errors.Is(err, apiservercel.ErrOutOfBudget) {
		err = nil // the messages are missing
	}
	says := verdict{decisions: make([]decision, len(results))}
	for i, r := range results {
		switch {
		case r.Error != nil:
			says.decisions[i] = p.failed(r.Error)
		case err != nil:
			says.decisions[i] = p.failed(fmt.Errorf("failed messageExpression: %w", err))
		case r.EvalResult != types.True:
			says.decisions[i] = refusal(&p.Spec.Validations[i], messages, i)
		}
	}
	notes, _, err := in.Evaluate(ctx, e.Annotations, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return p.failure(err)
	}
	for i, r := range notes {
		if r.Error != nil {
			says.broken = append(says.broken, r.Error)
		} else if text, _ := r.EvalResult.Value().(string); strings.TrimSpace(text) != "" {
			says.annotations = append(says.annotations, annotation{p.Spec.AuditAnnotations[i].Key, strings.TrimSpace(text)})
		}
	}
	return says
}

// failure is the verdict where nothing could be evaluated.
func (p *policy) failure(err error) verdict { return verdict{decisions: []decision{p.failed(err)}} }

// failed is the decision about an expression that could not be evaluated.
func (p *policy) failed(err error) decision {
	return decision{denied: !p.ignores(), message: err.Error()}
}

// ignores reports whether the policy is skipped where it cannot be evaluated.
func (p *policy) ignores() bool {
	return p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy == admissionv1.Ignore
}

// refusal is the decision about a validation that is false. Its message is the result of messageExpression if that is usable,
// or else the message, or else the expression.
func refusal(v *admissionv1.Validation, messages []plugincel.EvaluationResult, i int) decision {
	d := decision{denied: true, reason: metav1.StatusReasonInvalid}
	if v.Reason != nil {
		d.reason = *v.Reason
	}
	if i < len(messages) && messages[i].Error == nil && messages[i].EvalResult != nil {
		text, _ := messages[i].EvalResult.Value().(string)
		if text = strings.TrimSpace(text); len(text) <= celconfig.MaxEvaluatedMessageExpressionSizeBytes && !strings.Contains(text, "\n") {
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
