// Package policies evaluates ValidatingAdmissionPolicies.
//
//   - Policies: the policies that have bindings, in the order of their names.
//   - decide.go: what a policy and its bindings say about a request.
//   - params.go: the objects that parameterize a policy.
//   - outcome.go: what becomes of the decisions: an error, warnings, annotations.
//
// A request costs one atomic load if nothing is configured.
package policies

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/admissionpolicy"
	"monopod/apiserver/registry/following"
	"monopod/apiserver/registry/kind"
)

// Config of Policies. Kind is required.
type Config struct {
	match.Config
	following.Following
	// Kind returns the served resource of a kind; nil: none.
	Kind func(gvk schema.GroupVersionKind) *kind.Resource
}

// Policies contains the configured policies.
type Policies struct {
	cfg   Config
	now   atomic.Pointer[[]*policy] // nil: no policy is bound
	mu    sync.Mutex                // guards known, and changes of now
	known map[string]*policy        // by the UID and the resourceVersion
}

// policy is a policy with its bindings.
type policy struct {
	*admissionv1.ValidatingAdmissionPolicy
	selectors match.Selectors
	compiled  func() (*admissionpolicy.Expressions, error)
	bindings  []*binding
}

type binding struct {
	*admissionv1.ValidatingAdmissionPolicyBinding
	selectors match.Selectors
}

// New returns Policies without policies.
func New(cfg Config) *Policies { return &Policies{cfg: cfg, known: map[string]*policy{}} }

// Plugin returns the plugin that evaluates the policies.
func (p *Policies) Plugin() admission.Plugin {
	return admission.Plugin{Name: "ValidatingAdmissionPolicy", Validate: p.validate}
}

// Any reports whether a policy is bound.
func (p *Policies) Any() bool { return p.now.Load() != nil }

// Configuration returns what configures the policies.
func (p *Policies) Configuration() following.Configuration {
	return following.Configuration{Following: p.cfg.Following, Load: p.Load,
		Kinds: []schema.GroupVersionResource{client.ValidatingAdmissionPolicies, client.ValidatingAdmissionPolicyBindings}}
}

// Load reads the policies and their bindings. It must be called when one has changed.
func (p *Policies) Load(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	bound, err := p.bindings(ctx)
	if err != nil {
		return err
	}
	all, err := client.List[*admissionv1.ValidatingAdmissionPolicy](ctx, p.cfg.API, client.Selector{})
	if err != nil {
		return err
	}
	known := map[string]*policy{}
	var now []*policy
	for _, is := range all {
		if len(bound[is.Name]) == 0 {
			continue
		}
		key := string(is.UID) + "/" + is.ResourceVersion
		one := policyOf(is)
		if before := p.known[key]; before != nil {
			one.compiled = before.compiled
		}
		one.bindings = bound[is.Name]
		known[key] = one
		now = append(now, one)
	}
	p.known = known
	slices.SortFunc(now, func(a, b *policy) int { return cmp.Compare(a.Name, b.Name) })
	if len(now) == 0 {
		p.now.Store(nil)
	} else {
		p.now.Store(&now)
	}
	return nil
}

// policyOf returns a policy, which is compiled when it is needed first.
func policyOf(is *admissionv1.ValidatingAdmissionPolicy) *policy {
	return &policy{
		ValidatingAdmissionPolicy: is,
		selectors:                 selectorsOf(is.Spec.MatchConstraints),
		compiled:                  sync.OnceValues(func() (*admissionpolicy.Expressions, error) { return admissionpolicy.Compile(&is.Spec) }),
	}
}

// bindings returns the bindings by the names of their policies, in the order of their own names.
func (p *Policies) bindings(ctx context.Context) (map[string][]*binding, error) {
	all, err := client.List[*admissionv1.ValidatingAdmissionPolicyBinding](ctx, p.cfg.API, client.Selector{})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *admissionv1.ValidatingAdmissionPolicyBinding) int { return cmp.Compare(a.Name, b.Name) })
	by := map[string][]*binding{}
	for _, b := range all {
		by[b.Spec.PolicyName] = append(by[b.Spec.PolicyName], &binding{b, selectorsOf(b.Spec.MatchResources)})
	}
	return by, nil
}

func selectorsOf(m *admissionv1.MatchResources) match.Selectors {
	if m == nil {
		m = &admissionv1.MatchResources{}
	}
	return match.NewSelectors(cmp.Or(m.NamespaceSelector, everything), cmp.Or(m.ObjectSelector, everything))
}

// everything is the selector that is not set.
var everything = new(metav1.LabelSelector)
