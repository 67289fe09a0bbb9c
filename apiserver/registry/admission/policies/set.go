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

// policySet contains the policies of one kind that have bindings, in the order of their names. E is the compiled form.
type policySet[E any] struct {
	bound    atomic.Pointer[[]*policy[E]] // nil: no policy has a binding
	compiled map[string]func() (E, error) // by UID and resourceVersion
}

// storedPolicy is a policy without its bindings.
type storedPolicy[E any] struct {
	object  kind.Object
	common  policyMeta
	compile func() (E, error)
}

// policy is a policy with its bindings.
type policy[E any] struct {
	policyMeta
	compiled func() (E, error) // compiles the policy on its first call
}

// policyMeta contains the fields that policies of both kinds have.
type policyMeta struct {
	name, kind string
	params     *admissionv1.ParamKind
	match      *admissionv1.MatchResources
	onFailure  *admissionv1.FailurePolicyType
	selectors  match.Selectors
	bindings   []*binding // in the order of their names
}

// binding is a binding of either kind. A mutating one has no actions.
type binding struct {
	name, policy string
	params       *admissionv1.ParamRef
	match        *admissionv1.MatchResources
	actions      []admissionv1.ValidationAction
	selectors    match.Selectors
}

// ignores reports whether the failurePolicy is Ignore.
func (p *policyMeta) ignores() bool { return p.onFailure != nil && *p.onFailure == admissionv1.Ignore }

// replace sets the policies. Unchanged policies stay compiled.
func (s *policySet[E]) replace(all []storedPolicy[E], bindings []*binding) {
	slices.SortFunc(bindings, func(a, b *binding) int { return cmp.Compare(a.name, b.name) })
	bound := map[string][]*binding{}
	for _, b := range bindings {
		b.selectors = selectorsOf(b.match)
		bound[b.policy] = append(bound[b.policy], b)
	}
	known := map[string]func() (E, error){}
	var now []*policy[E]
	for _, r := range all {
		name := r.object.GetName()
		if len(bound[name]) == 0 {
			continue
		}
		key := string(r.object.GetUID()) + "/" + r.object.GetResourceVersion()
		one := &policy[E]{policyMeta: r.common, compiled: s.compiled[key]}
		if one.compiled == nil {
			one.compiled = sync.OnceValues(r.compile)
		}
		one.name, one.bindings, one.selectors = name, bound[name], selectorsOf(one.match)
		known[key] = one.compiled
		now = append(now, one)
	}
	s.compiled = known
	slices.SortFunc(now, func(a, b *policy[E]) int { return cmp.Compare(a.name, b.name) })
	if len(now) == 0 {
		s.bound.Store(nil)
	} else {
		s.bound.Store(&now)
	}
}

func selectorsOf(m *admissionv1.MatchResources) match.Selectors {
	if m == nil {
		m = &admissionv1.MatchResources{}
	}
	return match.NewSelectors(cmp.Or(m.NamespaceSelector, everySelector), cmp.Or(m.ObjectSelector, everySelector))
}

// everySelector selects everything. It is the default of both selectors.
var everySelector = new(metav1.LabelSelector)
