package virtual

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/request"
)

// reviews answers reviews of authentication and authorization with the server's own decisions.
func (v *virtual) reviews() Answers {
	who, may := authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion
	return Answers{
		who.WithResource("selfsubjectreviews"):        reviewOf(who.WithKind("SelfSubjectReview"), v.reviewSelf),
		who.WithResource("tokenreviews"):              reviewOf(who.WithKind("TokenReview"), v.reviewToken),
		may.WithResource("subjectaccessreviews"):      reviewOf(may.WithKind("SubjectAccessReview"), v.reviewAccess),
		may.WithResource("localsubjectaccessreviews"): reviewOf(may.WithKind("LocalSubjectAccessReview"), v.reviewLocal),
		may.WithResource("selfsubjectaccessreviews"):  reviewOf(may.WithKind("SelfSubjectAccessReview"), v.reviewOwnAccess),
		may.WithResource("selfsubjectrulesreviews"):   reviewOf(may.WithKind("SelfSubjectRulesReview"), v.reviewRules),
	}
}

// reviewOf answers a review of type T, whose status do sets.
func reviewOf[T kind.Object](gvk schema.GroupVersionKind, do func(ctx context.Context, review T) error) Answer {
	return Answer{Create: func(ctx context.Context, _ client.Ref, obj kind.Object) (runtime.Object, error) {
		obj.GetObjectKind().SetGroupVersionKind(gvk)
		err := do(ctx, obj.(T))
		if errs := (validationErrors)(nil); errors.As(err, &errs) {
			return nil, apierrors.NewInvalid(gvk.GroupKind(), "", field.ErrorList(errs))
		}
		return obj, err
	}}
}

// validationErrors are the validation errors of a review.
type validationErrors field.ErrorList

func (e validationErrors) Error() string { return field.ErrorList(e).ToAggregate().Error() }

func invalid(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return validationErrors(errs)
}

func (v *virtual) reviewSelf(ctx context.Context, review *authenticationv1.SelfSubjectReview) error {
	review.Status.UserInfo = userInfo(auth.UserOf(ctx))
	review.CreationTimestamp = metav1.NewTime(v.Clock.Now())
	return nil
}

func userInfo(u auth.User) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}

// reviewToken authenticates only the review's token, independent of the request that contains the review.
func (v *virtual) reviewToken(ctx context.Context, review *authenticationv1.TokenReview) error {
	if review.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	audiences := review.Spec.Audiences
	if len(audiences) == 0 {
		audiences = []string{auth.Audience}
	}
	ctx, cancel := auth.ForToken(ctx, audiences)
	defer cancel()
	user, ok := v.Authenticator.Authenticate(withToken(ctx, review.Spec.Token))
	if user.Audiences == nil { // valid only for the API
		user.Audiences = []string{auth.Audience}
	}
	for _, audience := range audiences {
		if ok && slices.Contains(user.Audiences, audience) {
			review.Status.Audiences = append(review.Status.Audiences, audience)
		}
	}
	if len(review.Status.Audiences) > 0 {
		review.Status.Authenticated, review.Status.User = true, userInfo(user)
	}
	return nil
}

// withToken returns a request that has only a token.
func withToken(ctx context.Context, token string) *http.Request {
	r := &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}
	return r.WithContext(ctx)
}

func (v *virtual) reviewAccess(ctx context.Context, review *authorizationv1.SubjectAccessReview) error {
	spec, at := &review.Spec, field.NewPath("spec")
	errs := append(oneKindOfAttributes(spec.ResourceAttributes, spec.NonResourceAttributes, at), someSubject(spec, at)...)
	if err := invalid(append(errs, emptyMeta(review.ObjectMeta)...)); err != nil {
		return err
	}
	subject := subjectOf(spec)
	if callsKubelet(auth.UserOf(ctx), subject, spec.ResourceAttributes) {
		review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "API servers may call kubelets"}
		return nil
	}
	return v.decide(ctx, &review.Status, subject, spec.ResourceAttributes, spec.NonResourceAttributes)
}

// callsKubelet reports whether a kubelet asks if an API server may call it. Upstream binds a role to the user of the
// API server's certificate. Here the answer exists only for the node that the review is about: in the API the
// certificate remains worthless (connect.Kubelet says why).
func callsKubelet(asks, subject auth.User, a *authorizationv1.ResourceAttributes) bool {
	node, ok := strings.CutPrefix(asks.Name, auth.NodePrefix)
	return ok && slices.Contains(asks.Groups, auth.Nodes) &&
		subject.Name == auth.KubeletClient.Name && slices.Contains(subject.Groups, auth.KubeletClient.Groups[0]) &&
		a != nil && a.Group == "" && a.Resource == client.Nodes.Resource && a.Subresource != "" &&
		a.Namespace == "" && a.Name != "" && a.Name == node
}

func (v *virtual) reviewLocal(ctx context.Context, review *authorizationv1.LocalSubjectAccessReview) error {
	spec, at := &review.Spec, field.NewPath("spec")
	errs := append(oneKindOfAttributes(spec.ResourceAttributes, spec.NonResourceAttributes, at), someSubject(spec, at)...)
	if spec.ResourceAttributes != nil && spec.ResourceAttributes.Namespace != review.Namespace {
		errs = append(errs, field.Invalid(at.Child("resourceAttributes", "namespace"),
			spec.ResourceAttributes.Namespace, "must match metadata.namespace"))
	}
	if spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(at.Child("nonResourceAttributes"), spec.NonResourceAttributes,
			"disallowed on this kind of request"))
	}
	meta := review.ObjectMeta
	meta.Namespace = ""
	if err := invalid(append(errs, emptyMeta(meta)...)); err != nil {
		return err
	}
	return v.decide(ctx, &review.Status, subjectOf(spec), spec.ResourceAttributes, nil)
}

func (v *virtual) reviewOwnAccess(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview) error {
	spec := &review.Spec
	errs := oneKindOfAttributes(spec.ResourceAttributes, spec.NonResourceAttributes, field.NewPath("spec"))
	if err := invalid(append(errs, emptyMeta(review.ObjectMeta)...)); err != nil {
		return err
	}
	return v.decide(ctx, &review.Status, auth.UserOf(ctx), spec.ResourceAttributes, spec.NonResourceAttributes)
}

// emptyMeta requires empty metadata, because nothing is stored.
func emptyMeta(meta metav1.ObjectMeta) field.ErrorList {
	meta.ManagedFields = nil
	if equality.Semantic.DeepEqual(meta, metav1.ObjectMeta{}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, "must be empty")}
}

// subjectOf returns the user of a review, with only the groups in the review.
func subjectOf(spec *authorizationv1.SubjectAccessReviewSpec) auth.User {
	u := auth.User{Name: spec.User, UID: spec.UID, Groups: spec.Groups, Extra: map[string][]string{}}
	for key, values := range spec.Extra {
		u.Extra[key] = values
	}
	return u
}

// oneKindOfAttributes requires either a resource or a path.
func oneKindOfAttributes(resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes,
	at *field.Path) field.ErrorList {
	switch {
	case resource != nil && path != nil:
		return field.ErrorList{field.Invalid(at.Child("nonResourceAttributes"), path,
			"cannot be specified in combination with resourceAttributes")}
	case resource == nil && path == nil:
		return field.ErrorList{field.Invalid(at.Child("resourceAttributes"), resource,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	}
	return nil
}

func someSubject(spec *authorizationv1.SubjectAccessReviewSpec, at *field.Path) field.ErrorList {
	if spec.User == "" && len(spec.Groups) == 0 {
		return field.ErrorList{field.Invalid(at.Child("user"), spec.User, "at least one of user or group must be specified")}
	}
	return nil
}

// decide sets the status of a review. An error of the authorizer is reported and does not allow the request.
func (v *virtual) decide(ctx context.Context, status *authorizationv1.SubjectAccessReviewStatus, u auth.User,
	resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) error {
	a := auth.Attributes{User: u}
	if path != nil {
		a.Verb, a.Path = path.Verb, path.Path
	} else {
		a.Verb, a.Namespace, a.Name = resource.Verb, resource.Namespace, resource.Name
		a.Group, a.Version = resource.Group, resource.Version
		a.Resource, a.Subresource = resource.Resource, resource.Subresource
		a.Fields = reviewedFields(resource)
	}
	allowed, reason, err := v.Guard.Allows(ctx, a)
	*status = authorizationv1.SubjectAccessReviewStatus{Allowed: allowed, Reason: reason}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return nil
}

// reviewedFields returns the field selector of a reviewed list, watch or deletecollection. It drops invalid
// requirements, because a request without them is never allowed more (upstream: BuildAuthorizerAttributes).
func reviewedFields(a *authorizationv1.ResourceAttributes) (requirements fields.Requirements) {
	if a.FieldSelector == nil || a.Verb != "list" && a.Verb != "watch" && a.Verb != "deletecollection" {
		return nil
	}
	if sel, err := request.ParseFields(a.FieldSelector.RawSelector); err == nil && a.FieldSelector.RawSelector != "" {
		return sel.Requirements()
	}
	for _, f := range a.FieldSelector.Requirements {
		if f.Operator == metav1.FieldSelectorOpIn && len(f.Values) == 1 {
			requirements = append(requirements,
				fields.Requirement{Operator: selection.Equals, Field: f.Key, Value: f.Values[0]})
		}
	}
	return requirements
}

func (v *virtual) reviewRules(ctx context.Context, review *authorizationv1.SelfSubjectRulesReview) error {
	if review.Spec.Namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	rules, err := v.Guard.Rules(ctx, auth.UserOf(ctx), review.Spec.Namespace)
	review.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
		Incomplete: err != nil,
	}
	if err != nil {
		review.Status.EvaluationError = err.Error()
	}
	for _, r := range rules {
		if len(r.Resources) > 0 {
			review.Status.ResourceRules = append(review.Status.ResourceRules, authorizationv1.ResourceRule{
				Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames})
		}
		if len(r.NonResourceURLs) > 0 {
			review.Status.NonResourceRules = append(review.Status.NonResourceRules, authorizationv1.NonResourceRule{
				Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
		}
	}
	return nil
}
