package flow

import (
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"monopod/apiserver/auth"
)

// The response headers, in canonical form.
const (
	schemaHeader = "X-Kubernetes-Pf-Flowschema-Uid"
	levelHeader  = "X-Kubernetes-Pf-Prioritylevel-Uid"
)

// Request contains the properties of a request that FlowSchemas match.
type Request struct {
	User auth.User
	Verb string
	Path string // as the client sent it
	// Of a resource; Resource is empty for other paths. Namespace of a request for a namespace is that namespace.
	Namespace, Group, Version, Resource, Subresource, Name string
}

// schema is a FlowSchema with the level to which its requests belong. It is immutable, except for what it counts.
type schema struct {
	name     string
	rules    []flowcontrolv1.PolicyRulesWithSubjects
	distinct flowcontrolv1.FlowDistinguisherMethodType // empty: all requests are one flow
	level    *level
	headers  [2][]string // the values of schemaHeader and levelHeader
	counts   *counts
}

func (s *schema) distinguisher(r *Request) string {
	switch s.distinct {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return r.User.Name
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return r.Namespace
	}
	return ""
}

// classify returns the first schema that matches a request.
func (r *rules) classify(req *Request) *schema {
	for _, s := range r.schemas {
		for i := range s.rules {
			if matches(&s.rules[i], req) {
				return s
			}
		}
	}
	return r.catchAll
}

func matches(rule *flowcontrolv1.PolicyRulesWithSubjects, r *Request) bool {
	if !slices.ContainsFunc(rule.Subjects, func(s flowcontrolv1.Subject) bool { return isSubject(&s, &r.User) }) {
		return false
	}
	if r.Resource == "" {
		return slices.ContainsFunc(rule.NonResourceRules, func(n flowcontrolv1.NonResourcePolicyRule) bool {
			return has(n.Verbs, r.Verb) && slices.ContainsFunc(n.NonResourceURLs,
				func(url string) bool { return isPath(url, r.Path) })
		})
	}
	return slices.ContainsFunc(rule.ResourceRules, func(n flowcontrolv1.ResourcePolicyRule) bool {
		if !has(n.Verbs, r.Verb) || !has(n.APIGroups, r.Group) || !isResource(n.Resources, r) {
			return false
		}
		if r.Namespace == "" {
			return n.ClusterScope
		}
		return has(n.Namespaces, r.Namespace)
	})
}

func isSubject(s *flowcontrolv1.Subject, u *auth.User) bool {
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
		return s.User.Name == flowcontrolv1.NameAll || s.User.Name == u.Name
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
		return s.Group.Name == flowcontrolv1.NameAll || slices.Contains(u.Groups, s.Group.Name)
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		if s.ServiceAccount.Name != flowcontrolv1.NameAll {
			return serviceaccount.MatchesUsername(s.ServiceAccount.Namespace, s.ServiceAccount.Name, u.Name)
		}
		account, ok := strings.CutPrefix(u.Name, serviceaccount.ServiceAccountUsernamePrefix)
		namespace, _, both := strings.Cut(account, ":")
		return ok && both && namespace == s.ServiceAccount.Namespace
	}
	return false
}

// has reports whether all contains s, or only "*".
func has(all []string, s string) bool {
	return len(all) == 1 && all[0] == "*" || slices.Contains(all, s)
}

// isResource is has for a resource with its subresource.
func isResource(all []string, r *Request) bool {
	if r.Subresource == "" || len(all) == 1 && all[0] == "*" {
		return has(all, r.Resource)
	}
	return slices.ContainsFunc(all, func(s string) bool {
		resource, sub, _ := strings.Cut(s, "/")
		return resource == r.Resource && sub == r.Subresource
	})
}

// isPath reports whether path is url, or below it.
func isPath(url, path string) bool {
	if url == flowcontrolv1.NonResourceAll || url == path {
		return true
	}
	folder := strings.TrimSuffix(strings.TrimSuffix(url, "*"), "/")
	rest, ok := strings.CutPrefix(path, folder)
	return ok && strings.HasPrefix(rest, "/")
}
