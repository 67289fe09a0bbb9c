package policies

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/kind"
)

// matcher matches one request against the policies of a kind.
type matcher struct {
	*Policies
	*match.Request
}

func (p *Policies) newMatcher(r *admission.Request, mutating bool) matcher {
	return matcher{p, match.New(&p.cfg.Config, r, mutating)}
}

// matchingVersion returns the version of the object that a policy or a binding matches; nil: it does not match the
// request.
func (v *matcher) matchingVersion(ctx context.Context, m *admissionv1.MatchResources,
	s *match.Selectors) (*kind.Resource, error) {
	if m == nil {
		return v.Requested, nil
	}
	res := v.Requested
	if len(m.ResourceRules) > 0 {
		res = v.MatchingVersion(m.ResourceRules, m.MatchPolicy)
	}
	if res == nil || v.MatchingVersion(m.ExcludeResourceRules, m.MatchPolicy) != nil {
		return nil, nil
	}
	if ok, err := v.Selected(ctx, s); err != nil || !ok {
		return nil, err
	}
	return res, nil
}

// paramsFor returns the parameters of a binding, one object for each evaluation; none if the binding does not match the
// request.
func (v *matcher) paramsFor(ctx context.Context, p *policyMeta, b *binding) ([]runtime.Object, error) {
	if res, err := v.matchingVersion(ctx, b.match, &b.selectors); err != nil || res == nil {
		return nil, err
	}
	return v.params(ctx, p.params, b.params)
}

// namespaceObject returns the CEL variable namespaceObject: nil for a request without a namespace.
func (v *matcher) namespaceObject(ctx context.Context) (*corev1.Namespace, error) {
	if v.Request.Namespace == "" || v.R.Resource.GVR == client.Namespaces {
		return nil, nil
	}
	return v.NamespaceObject(ctx)
}
