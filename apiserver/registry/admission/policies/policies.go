// Package policies evaluates ValidatingAdmissionPolicies and MutatingAdmissionPolicies.
//
//   - Policies: the policies that have bindings, in the order of their names.
//   - set.go: the compiled policies of one kind.
//   - matcher.go: matches policies and bindings to a request.
//   - validate.go: evaluates validating policies.
//   - actions.go: turns failed validations into an error, warnings and audit annotations.
//   - mutate.go: applies mutating policies.
//
// Without a policy, a request costs one atomic load for each kind.
package policies

import (
	"context"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/admissionregistration"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/reload"
)

// Config of Policies. Kind and Types are required.
type Config struct {
	match.Config
	reload.Follower
	// Kind returns the served resource of a kind; nil: not served.
	Kind func(gvk schema.GroupVersionKind) *kind.Resource
	// Types returns the converter by which objects of a resource or a subresource merge.
	Types func(res *kind.Resource, subresource string) (managedfields.TypeConverter, error)
}

// Policies contains the configured policies.
type Policies struct {
	cfg        Config
	mu         sync.Mutex // serializes changes of both sets
	validating policySet[*admissionregistration.Expressions]
	mutating   policySet[*admissionregistration.Mutations]
}

// New returns Policies without policies.
func New(cfg Config) *Policies { return &Policies{cfg: cfg} }

const mutatingName = "MutatingAdmissionPolicy"

// Plugins returns the mutating and the validating plugin.
func (p *Policies) Plugins() (mutating, validating admission.Plugin) {
	return admission.Plugin{Name: mutatingName, Mutate: p.mutate},
		admission.Plugin{Name: "ValidatingAdmissionPolicy", Validate: p.validate}
}

// Any reports whether any policy has a binding.
func (p *Policies) Any() bool { return p.validating.bound.Load() != nil || p.AnyMutating() }

// AnyMutating reports whether any mutating policy has a binding.
func (p *Policies) AnyMutating() bool { return p.mutating.bound.Load() != nil }

// Configuration returns the kinds that configure the policies.
func (p *Policies) Configuration() reload.Configuration {
	return reload.Configuration{Follower: p.cfg.Follower, Load: p.Load, Kinds: []schema.GroupVersionResource{
		client.ValidatingAdmissionPolicies, client.ValidatingAdmissionPolicyBindings,
		client.MutatingAdmissionPolicies, client.MutatingAdmissionPolicyBindings,
	}}
}

// Load reads the policies and their bindings. The caller must call it after each change of one.
func (p *Policies) Load(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.loadValidating(ctx); err != nil {
		return err
	}
	return p.loadMutating(ctx)
}

func (p *Policies) loadValidating(ctx context.Context) error {
	all, err := client.List[*admissionv1.ValidatingAdmissionPolicy](ctx, p.cfg.API, client.Selector{})
	if err != nil {
		return err
	}
	bindings, err := client.List[*admissionv1.ValidatingAdmissionPolicyBinding](ctx, p.cfg.API, client.Selector{})
	if err != nil {
		return err
	}
	var rules []storedPolicy[*admissionregistration.Expressions]
	for _, is := range all {
		rules = append(rules, storedPolicy[*admissionregistration.Expressions]{is,
			policyMeta{kind: "ValidatingAdmissionPolicy", params: is.Spec.ParamKind, match: is.Spec.MatchConstraints,
				onFailure: is.Spec.FailurePolicy},
			func() (*admissionregistration.Expressions, error) { return admissionregistration.Compile(&is.Spec) }})
	}
	var bound []*binding
	for _, b := range bindings {
		bound = append(bound,
			&binding{name: b.Name, policy: b.Spec.PolicyName, params: b.Spec.ParamRef, match: b.Spec.MatchResources,
				actions: b.Spec.ValidationActions})
	}
	p.validating.replace(rules, bound)
	return nil
}

func (p *Policies) loadMutating(ctx context.Context) error {
	all, err := client.List[*admissionv1.MutatingAdmissionPolicy](ctx, p.cfg.API, client.Selector{})
	if err != nil {
		return err
	}
	bindings, err := client.List[*admissionv1.MutatingAdmissionPolicyBinding](ctx, p.cfg.API, client.Selector{})
	if err != nil {
		return err
	}
	var rules []storedPolicy[*admissionregistration.Mutations]
	for _, is := range all {
		rules = append(rules, storedPolicy[*admissionregistration.Mutations]{is,
			policyMeta{kind: mutatingName, params: is.Spec.ParamKind, match: is.Spec.MatchConstraints,
				onFailure: is.Spec.FailurePolicy},
			func() (*admissionregistration.Mutations, error) {
				return admissionregistration.CompileMutations(&is.Spec)
			}})
	}
	var bound []*binding
	for _, b := range bindings {
		bound = append(bound,
			&binding{name: b.Name, policy: b.Spec.PolicyName, params: b.Spec.ParamRef, match: b.Spec.MatchResources})
	}
	p.mutating.replace(rules, bound)
	return nil
}
