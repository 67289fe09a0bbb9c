package webhooks

import (
	"context"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	upstream "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/client"
	"monopod/apiserver/registry/kind"
)

// wants returns the version in which the webhook gets the request; nil: it is not called.
func (v *visit) wants(ctx context.Context, h *hook) (*kind.Resource, error) {
	res := v.ruled(h)
	if res == nil {
		return nil, nil
	}
	if h.err != nil {
		return nil, apierrors.NewInternalError(h.err)
	}
	if !h.objects.Empty() && !selects(h.objects, v.in(v.requested).object) && !selects(h.objects, v.in(v.requested).old) {
		return nil, nil
	}
	if v.namespace != "" && !h.namespaces.Empty() {
		set, err := v.labelsOf(ctx)
		if err != nil {
			return nil, err
		}
		if !h.namespaces.Matches(set) {
			return nil, nil
		}
	}
	if len(h.MatchConditions) > 0 {
		if ok, err := v.meets(ctx, h, res); err != nil || !ok {
			return nil, err
		}
	}
	return res, nil
}

// selects reports whether a selector matches an object with metadata.
func selects(s labels.Selector, obj runtime.Object) bool {
	o, ok := obj.(metav1.Object)
	return ok && s.Matches(labels.Set(o.GetLabels()))
}

// ruled returns the version by which a rule of the webhook matches: the requested one, or else an equivalent one.
func (v *visit) ruled(h *hook) *kind.Resource {
	for i := range h.Rules {
		if v.matches(&h.Rules[i], v.requested.GVR) {
			return v.requested
		}
	}
	if h.MatchPolicy != nil && *h.MatchPolicy == admissionv1.Exact {
		return nil
	}
	for i := range h.Rules {
		for _, res := range v.versions() {
			if v.matches(&h.Rules[i], res.GVR) {
				return res
			}
		}
	}
	return nil
}

func (v *visit) matches(r *admissionv1.RuleWithOperations, gvr schema.GroupVersionResource) bool {
	return v.inScope(r.Scope) && anyOf(r.Operations, admissionv1.OperationType(v.r.Operation)) &&
		anyOf(r.APIGroups, gvr.Group) && anyOf(r.APIVersions, gvr.Version) && slices.ContainsFunc(r.Resources, func(of string) bool {
		name, sub, _ := strings.Cut(of, "/")
		return (name == "*" || name == gvr.Resource) && (sub == "*" || sub == v.r.Subresource)
	})
}

func (v *visit) inScope(scope *admissionv1.ScopeType) bool {
	if scope == nil {
		return true
	}
	cluster := v.namespace == "" || v.r.Resource.GVR == client.Namespaces
	switch *scope {
	case admissionv1.NamespacedScope:
		return !cluster
	case admissionv1.ClusterScope:
		return cluster
	}
	return true
}

func anyOf[T ~string](values []T, value T) bool {
	return slices.Contains(values, "*") || slices.Contains(values, value)
}

// meets reports whether the request meets the webhook's match conditions in a version.
func (v *visit) meets(ctx context.Context, h *hook, res *kind.Resource) (bool, error) {
	f := v.in(res)
	object, err := celForm(f.object)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	old, err := celForm(f.old)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	u := v.user(ctx)
	asked := upstream.NewAttributesRecord(object, old, f.kind, v.namespace, v.name(), v.requested.GVR, v.r.Subresource, upstream.Operation(v.r.Operation),
		v.options(), v.r.DryRun, &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra})
	attributes := &upstream.VersionedAttributes{
		Attributes: asked, VersionedObject: upstream.NewLazyObject(object), VersionedOldObject: upstream.NewLazyObject(old), VersionedKind: f.kind}
	request := plugincel.CreateAdmissionRequest(asked, metav1.GroupVersionResource(res.GVR), metav1.GroupVersionKind(f.kind))
	results, _, err := h.conditions().ForInput(ctx, attributes, request, plugincel.OptionalVariableBindings{Authorizer: asks{v.cfg.Authorizer}},
		nil, celconfig.RuntimeCELCostBudgetMatchConditions)
	var errs []error
	if err != nil {
		errs = append(errs, err)
	}
	for _, r := range results {
		if r.Error != nil {
			errs = append(errs, r.Error)
		} else if r.EvalResult == types.False {
			return false, nil
		}
	}
	if len(errs) > 0 && h.ignores() {
		return false, nil
	}
	if len(errs) > 0 {
		return false, apierrors.NewForbidden(v.requested.GVR.GroupResource(), v.name(), utilerrors.NewAggregate(errs))
	}
	return true, nil
}

// celForm returns an object in a form that CEL reads: a custom one decoded. nil for none.
func celForm(obj runtime.Object) (runtime.Object, error) {
	if o, ok := obj.(kind.Untyped); ok {
		return o.Unstructured()
	}
	return obj, nil
}

// asks is an auth.Authorizer for the variable authorizer of CEL.
type asks struct{ auth.Authorizer }

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a asks) Authorize(ctx context.Context, q authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.Authorizer == nil {
		return authorizer.DecisionAllow, "", nil
	}
	u := q.GetUser()
	about := auth.Attributes{User: auth.User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}, Verb: q.GetVerb()}
	if q.IsResourceRequest() {
		about.Namespace, about.Group, about.Version, about.Resource = q.GetNamespace(), q.GetAPIGroup(), q.GetAPIVersion(), q.GetResource()
		about.Subresource, about.Name = q.GetSubresource(), q.GetName()
	} else {
		about.Path = q.GetPath()
	}
	allowed, reason, err := a.Authorizer.Authorize(ctx, about)
	if allowed {
		return authorizer.DecisionAllow, reason, err
	}
	return authorizer.DecisionNoOpinion, reason, err
}
