package match

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/managedfields"
	upstream "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
)

// Selectors select requests by the labels of the namespace and of the object.
type Selectors struct {
	namespaces, objects labels.Selector
	err                 error // a selector is invalid
}

// NewSelectors returns the selectors of a configuration.
func NewSelectors(namespaces, objects *metav1.LabelSelector) Selectors {
	var errs [2]error
	var s Selectors
	s.namespaces, errs[0] = metav1.LabelSelectorAsSelector(namespaces)
	s.objects, errs[1] = metav1.LabelSelectorAsSelector(objects)
	s.err = errors.Join(errs[:]...)
	return s
}

// Selected reports whether s selects the request.
func (q *Request) Selected(ctx context.Context, s *Selectors) (bool, error) {
	if s.err != nil {
		return false, apierrors.NewInternalError(s.err)
	}
	if !s.objects.Empty() {
		f := q.Form(q.Requested)
		if f.Err != nil || !selects(s.objects, f.Object) && !selects(s.objects, f.Old) {
			return false, f.Err
		}
	}
	if q.Namespace == "" || s.namespaces.Empty() {
		return true, nil
	}
	set, err := q.labels(ctx)
	return err == nil && s.namespaces.Matches(set), err
}

// selects reports whether a selector matches an object with metadata.
func selects(s labels.Selector, obj runtime.Object) bool {
	o, ok := obj.(metav1.Object)
	return ok && s.Matches(labels.Set(o.GetLabels()))
}

// MatchingVersion returns the version of the resource that one of the rules matches: the requested version, or else an
// equivalent one unless policy is Exact; nil if no rule matches.
func (q *Request) MatchingVersion(rules []admissionv1.NamedRuleWithOperations,
	policy *admissionv1.MatchPolicyType) *kind.Resource {
	for i := range rules {
		if q.matches(&rules[i], q.Requested.GVR) {
			return q.Requested
		}
	}
	if policy != nil && *policy == admissionv1.Exact {
		return nil
	}
	for i := range rules {
		for _, res := range q.versions() {
			if q.matches(&rules[i], res.GVR) {
				return res
			}
		}
	}
	return nil
}

func (q *Request) matches(r *admissionv1.NamedRuleWithOperations, gvr schema.GroupVersionResource) bool {
	return q.inScope(r.Scope) && anyOf(r.Operations, admissionv1.OperationType(q.R.Operation)) &&
		anyOf(r.APIGroups, gvr.Group) && anyOf(r.APIVersions, gvr.Version) &&
		slices.ContainsFunc(r.Resources, func(of string) bool {
			name, sub, _ := strings.Cut(of, "/")
			return (name == "*" || name == gvr.Resource) && (sub == "*" || sub == q.R.Subresource)
		}) && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, q.Name()))
}

func (q *Request) inScope(scope *admissionv1.ScopeType) bool {
	if scope == nil {
		return true
	}
	cluster := q.Namespace == "" || q.R.Resource.GVR == client.Namespaces
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

// Input contains the variables that CEL expressions read: a request in one version.
type Input struct {
	attributes *upstream.VersionedAttributes
	request    *reviewv1.AdmissionRequest
	variables  plugincel.OptionalVariableBindings
	namespace  *corev1.Namespace
}

// Input returns the Input of the request in a version. params is the variable params, nil without one; namespace is the
// variable namespaceObject, nil for null.
func (q *Request) Input(ctx context.Context, res *kind.Resource, params runtime.Object,
	namespace *corev1.Namespace) (*Input, error) {
	f := q.Form(res)
	if f.Err != nil {
		return nil, f.Err
	}
	object, err := celObject(f.Object)
	if err != nil {
		return nil, err
	}
	old, err := celObject(f.Old)
	if err != nil {
		return nil, err
	}
	if params, err = celObject(params); err != nil {
		return nil, err
	}
	u := q.User(ctx)
	attributes := upstream.NewAttributesRecord(object, old, f.Kind, q.Namespace, q.Name(), q.Requested.GVR,
		q.R.Subresource, upstream.Operation(q.R.Operation), q.Options(), q.R.DryRun,
		&user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra})
	return &Input{
		attributes: &upstream.VersionedAttributes{
			Attributes: attributes, VersionedKind: f.Kind,
			VersionedObject: upstream.NewLazyObject(object), VersionedOldObject: upstream.NewLazyObject(old),
		},
		request: plugincel.CreateAdmissionRequest(attributes,
			metav1.GroupVersionResource(res.GVR), metav1.GroupVersionKind(f.Kind)),
		variables: plugincel.OptionalVariableBindings{VersionedParams: params, Authorizer: celAuthorizer{q.cfg.Authorizer}},
		namespace: plugincel.CreateNamespaceObject(namespace),
	}, nil
}

// Evaluate evaluates expressions at a cost of at most budget, and returns the rest of the budget.
func (in *Input) Evaluate(ctx context.Context, expressions plugincel.ConditionEvaluator,
	budget int64) (results []plugincel.EvaluationResult, left int64, err error) {
	return expressions.ForInput(ctx, in.attributes, in.request, in.variables, in.namespace, budget)
}

// Patch returns the request's object after a mutation, as a map. It returns the unchanged object if a test operation of
// the patch failed.
func (in *Input) Patch(ctx context.Context, p patch.Patcher, res *kind.Resource,
	types managedfields.TypeConverter) (runtime.Object, error) {
	return p.Patch(ctx, patch.Request{
		MatchedResource: res.GVR, VersionedAttributes: in.attributes, ObjectInterfaces: mapObjects{},
		OptionalVariables: in.variables, Namespace: in.namespace, TypeConverter: types,
	}, celconfig.RuntimeCELCostBudget)
}

// MeetsConditions reports whether the request meets all conditions. If none is false, the error names those that failed
// to evaluate.
func (in *Input) MeetsConditions(ctx context.Context, conditions plugincel.ConditionEvaluator) (bool, error) {
	results, _, err := in.Evaluate(ctx, conditions, celconfig.RuntimeCELCostBudgetMatchConditions)
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
	return len(errs) == 0, utilerrors.NewAggregate(errs)
}

// celObject returns an object in the form that CEL reads, which for an encoded object is a decoded copy; nil for nil.
func celObject(obj runtime.Object) (runtime.Object, error) {
	if o, ok := obj.(kind.Untyped); ok {
		return o.Unstructured()
	}
	if o, ok := obj.(kind.Packed); ok {
		return o.Typed()
	}
	return obj, nil
}

// celAuthorizer implements the variable authorizer of CEL by an auth.Authorizer.
type celAuthorizer struct{ auth.Authorizer }

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a celAuthorizer) Authorize(ctx context.Context, q authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.Authorizer == nil {
		return authorizer.DecisionAllow, "", nil
	}
	u := q.GetUser()
	attributes := auth.Attributes{
		User: auth.User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()},
		Verb: q.GetVerb(),
	}
	if q.IsResourceRequest() {
		attributes.Namespace, attributes.Name = q.GetNamespace(), q.GetName()
		attributes.Group, attributes.Version = q.GetAPIGroup(), q.GetAPIVersion()
		attributes.Resource, attributes.Subresource = q.GetResource(), q.GetSubresource()
	} else {
		attributes.Path = q.GetPath()
	}
	allowed, reason, err := a.Authorizer.Authorize(ctx, attributes)
	if allowed {
		return authorizer.DecisionAllow, reason, err
	}
	return authorizer.DecisionNoOpinion, reason, err
}
