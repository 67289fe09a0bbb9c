package registry

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/registry/kind"
)

// reviewResources returns the reviews of users and their permissions. The server answers them and stores nothing.
func reviewResources() []kind.Resource {
	who, may := authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion
	local := reviewResource(may, "localsubjectaccessreviews", "LocalSubjectAccessReview",
		func() kind.Object { return new(authorizationv1.LocalSubjectAccessReview) })
	local.Namespaced = true
	return []kind.Resource{
		reviewResource(who, "selfsubjectreviews", "SelfSubjectReview",
			func() kind.Object { return new(authenticationv1.SelfSubjectReview) }),
		reviewResource(who, "tokenreviews", "TokenReview", func() kind.Object { return new(authenticationv1.TokenReview) }),
		local,
		reviewResource(may, "selfsubjectaccessreviews", "SelfSubjectAccessReview",
			func() kind.Object { return new(authorizationv1.SelfSubjectAccessReview) }),
		reviewResource(may, "selfsubjectrulesreviews", "SelfSubjectRulesReview",
			func() kind.Object { return new(authorizationv1.SelfSubjectRulesReview) }),
		reviewResource(may, "subjectaccessreviews", "SubjectAccessReview",
			func() kind.Object { return new(authorizationv1.SubjectAccessReview) }),
	}
}

func reviewResource(gv schema.GroupVersion, resource, name string, empty func() kind.Object) kind.Resource {
	return kind.Resource{GVR: gv.WithResource(resource), Kind: name, Verbs: []string{"create"}, Virtual: true, New: empty}
}
