package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/admissionregistration"
	"monopod/apiserver/registry/kind"
)

// mutate implements admission.Plugin. It applies the policies one after the other.
func (p *Policies) mutate(ctx context.Context, r *admission.Request) error {
	now := p.mutating.bound.Load()
	if now == nil || r.Operation == admission.Delete || r.PartOf != "" || match.Exempt(ctx, r) {
		return nil
	}
	m := &mutation{matcher: p.newMatcher(r, true), reinvocation: match.ReinvocationOf(r, mutatingName)}
	for _, policy := range *now {
		if err := m.applyPolicy(ctx, policy); err != nil {
			return err
		}
	}
	m.reinvocation.End()
	return m.err()
}

// mutation is one request with the errors of its mutating policies.
type mutation struct {
	matcher
	reinvocation *match.Reinvocation
	denied       []denial
}

// applyPolicy applies a policy to the object. An error ends the request at once.
func (m *mutation) applyPolicy(ctx context.Context, p *policy[*admissionregistration.Mutations]) error {
	res, err := m.matchingVersion(ctx, p.match, &p.selectors)
	if err == nil && res == nil {
		return nil
	}
	var compiled *admissionregistration.Mutations
	if err == nil {
		compiled, err = p.compiled()
	}
	if err != nil {
		m.fail(&p.policyMeta, nil, fmt.Errorf("failed to configure policy: %w", err), "")
		return nil
	}
	for _, b := range p.bindings {
		all, err := m.paramsFor(ctx, &p.policyMeta, b)
		if err != nil {
			m.fail(&p.policyMeta, b, fmt.Errorf("failed to configure binding: %w", err), "")
		}
		for _, params := range all {
			if err := m.invoke(ctx, invocation{&p.policyMeta, b, compiled, res, params}); err != nil {
				return err
			}
		}
	}
	return nil
}

// fail records an error of a policy, unless its failurePolicy is Ignore.
func (m *mutation) fail(p *policyMeta, b *binding, err error, reason metav1.StatusReason) {
	if p.ignores() {
		return
	}
	by := fmt.Sprintf("policy %q", p.name)
	if b != nil {
		by = fmt.Sprintf("policy '%s' with binding '%s'", p.name, b.name)
	}
	m.denied = append(m.denied, denial{source: by, message: err.Error(), reason: reason})
}

// invocation is the application of a matching policy for one binding and one object of parameters.
type invocation struct {
	*policyMeta
	binding   *binding
	mutations *admissionregistration.Mutations
	res       *kind.Resource
	params    runtime.Object
}

// id identifies the invocation in both runs of a request.
func (i *invocation) id() string {
	id := i.name + "/" + i.binding.name
	if o, ok := i.params.(metav1.Object); ok {
		id += "/" + o.GetNamespace() + "/" + o.GetName()
	}
	return id
}

// invoke applies the mutations of a policy.
func (m *mutation) invoke(ctx context.Context, i invocation) error {
	namespace, err := m.namespaceObject(ctx)
	if err != nil {
		return err
	}
	if len(i.mutations.Spec.MatchConditions) > 0 {
		in, err := m.Input(ctx, i.res, i.params, nil)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		if ok, err := in.MeetsConditions(ctx, i.mutations.Conditions); err != nil || !ok {
			if err != nil {
				m.fail(i.policyMeta, i.binding, err, metav1.StatusReasonInvalid)
			}
			return nil
		}
	}
	if m.reinvocation.Skips(i.id()) {
		return nil
	}
	changed := false
	for _, patcher := range i.mutations.Patchers {
		did, err := m.apply(ctx, &i, patcher, namespace)
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			return err
		}
		if err != nil {
			m.fail(i.policyMeta, i.binding, err, metav1.StatusReasonInvalid)
		}
		changed = changed || did
	}
	if changed {
		m.reinvocation.Changed()
	}
	if i.mutations.Spec.ReinvocationPolicy == admissionv1.IfNeededReinvocationPolicy {
		m.reinvocation.Invoked(i.id())
	}
	return nil
}

// apply applies one mutation, and reports whether it changed the object.
func (m *mutation) apply(ctx context.Context, i *invocation, patcher patch.Patcher,
	namespace *corev1.Namespace) (bool, error) {
	f := m.Form(i.res)
	if f.Err != nil || f.Object == nil {
		return false, f.Err
	}
	types, err := m.types(i.res, f)
	if err != nil {
		return false, err
	}
	in, err := m.Input(ctx, i.res, i.params, namespace)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	after, err := in.Patch(i.mutations.Context(ctx), patcher, i.res, types)
	if err != nil {
		return false, err
	}
	u, ok := after.(*unstructured.Unstructured)
	if !ok {
		return false, nil // a test operation of the patch failed
	}
	data, err := json.Marshal(u.Object)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	return m.Replace(i.res, data, true)
}

// types returns the converter by which objects of the form merge, or 503.
func (m *mutation) types(res *kind.Resource, f *match.Form) (managedfields.TypeConverter, error) {
	types, err := m.cfg.Types(res, m.R.Subresource)
	if err == nil {
		stub := &unstructured.Unstructured{}
		stub.SetGroupVersionKind(f.Kind)
		_, err = types.ObjectToTyped(stub)
	}
	if err != nil || m.R.Object == nil { // the options of a connection cannot change
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("Resource kind %s not found. "+
			"There can be a delay between when CustomResourceDefinitions are created and when they are available.", f.Kind))
	}
	return types, nil
}

// err returns the error of the request, in upstream's words.
func (m *mutation) err() error {
	if len(m.denied) == 0 {
		return nil
	}
	var status *apierrors.StatusError
	if err := m.R.Forbid(errors.New("admission request denied by policy")); !errors.As(err, &status) {
		return err
	}
	for i, d := range m.denied {
		message := fmt.Sprintf("%s denied request: %s", d.source, d.message)
		if i == 0 {
			status.ErrStatus.Message = message
			if d.reason != "" {
				status.ErrStatus.Reason = d.reason
			}
		}
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	}
	return status
}
