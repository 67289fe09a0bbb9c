package policies

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/kind"
)

// set is the policies of one kind that have bindings, in the order of their names. E is what a policy is compiled to.
type set[E any] struct {
	now   atomic.Pointer[[]*policy[E]] // nil: no policy is bound
	known map[string]func() (E, error) // by the UID and the resourceVersion
}

// rule is a stored policy.
type rule[E any] struct {
	is      kind.Object
	common  common
	compile func() (E, error)
}

// policy is a policy with its bindings.
type policy[E any] struct {
	common
	compiled func() (E, error) // compiles it when it is called first
}

// common is what policies of both kinds have.
type common struct {
	name, kind string
	params     *admissionv1.ParamKind
	match      *admissionv1.MatchResources
	onFailure  *admissionv1.FailurePolicyType
	selectors  match.Selectors
	bindings   []*binding // in the order of their names
}

// binding is a binding of either kind; a mutating one has no actions.
type binding struct {
	name, policy string
	params       *admissionv1.ParamRef
	match        *admissionv1.MatchResources
	actions      []admissionv1.ValidationAction
	selectors    match.Selectors
}

// ignores reports whether the policy is skipped where it cannot be evaluated.
func (p *common) ignores() bool { return p.onFailure != nil && *p.onFailure == admissionv1.Ignore }

// set replaces the policies. Those that are known stay compiled.
func (s *set[E]) set(all []rule[E], bindings []*binding) {
	slices.SortFunc(bindings, func(a, b *binding) int { return cmp.Compare(a.name, b.name) })
	bound := map[string][]*binding{}
	for _, b := range bindings {
		b.selectors = selectorsOf(b.match)
		bound[b.policy] = append(bound[b.policy], b)
	}
	known := map[string]func() (E, error){}
	var now []*policy[E]
	for _, r := range all {
		name := r.is.GetName()
		if len(bound[name]) == 0 {
			continue
		}
		key := string(r.is.GetUID()) + "/" + r.is.GetResourceVersion()
		one := &policy[E]{common: r.common, compiled: s.known[key]}
		if one.compiled == nil {
			one.compiled = sync.OnceValues(r.compile)
		}
		one.name, one.bindings, one.selectors = name, bound[name], selectorsOf(one.match)
		known[key] = one.compiled
		now = append(now, one)
	}
	s.known = known
	slices.SortFunc(now, func(a, b *policy[E]) int { return cmp.Compare(a.name, b.name) })
	if len(now) == 0 {
		s.now.Store(nil)
	} else {
		s.now.Store(&now)
	}
}

func selectorsOf(m *admissionv1.MatchResources) match.Selectors {
	if m == nil {
		m = &admissionv1.MatchResources{}
	}
	return match.NewSelectors(cmp.Or(m.NamespaceSelector, everything), cmp.Or(m.ObjectSelector, everything))
}

// everything is the selector that is not set.
var everything = new(metav1.LabelSelector)
