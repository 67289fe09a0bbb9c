package flowcontrol

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/registry/kind"
)

// verbs returns the verbs that rules may contain, in upstream's order.
func verbs() []string {
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
}

func validateSchema(next, _ kind.Object, _ string) (errs field.ErrorList) {
	fs, at := next.(*flowSchema), field.NewPath("spec")
	spec := &fs.Spec
	precedence := at.Child("matchingPrecedence")
	switch {
	case spec.MatchingPrecedence <= 0:
		errs = append(errs, field.Invalid(precedence, spec.MatchingPrecedence, "must be a positive value"))
	case spec.MatchingPrecedence > flowcontrolv1.FlowSchemaMaxMatchingPrecedence:
		errs = append(errs, field.Invalid(precedence, spec.MatchingPrecedence,
			fmt.Sprintf("must not be greater than %v", flowcontrolv1.FlowSchemaMaxMatchingPrecedence)))
	case spec.MatchingPrecedence == 1 && fs.Name != flowcontrolv1.FlowSchemaNameExempt:
		errs = append(errs,
			field.Invalid(precedence, spec.MatchingPrecedence, "only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	if m := spec.DistinguisherMethod; m != nil && m.Type != flowcontrolv1.FlowDistinguisherMethodByUserType &&
		m.Type != flowcontrolv1.FlowDistinguisherMethodByNamespaceType {
		errs = append(errs, field.NotSupported(at.Child("distinguisherMethod", "type"), m,
			[]flowcontrolv1.FlowDistinguisherMethodType{flowcontrolv1.FlowDistinguisherMethodByNamespaceType,
				flowcontrolv1.FlowDistinguisherMethodByUserType}))
	}
	level := at.Child("priorityLevelConfiguration", "name")
	if name := spec.PriorityLevelConfiguration.Name; name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	} else {
		errs = append(errs, check.Invalid(level, name, check.Subdomain(name))...)
	}
	for i := range spec.Rules {
		errs = append(errs, ruleErrors(&spec.Rules[i], at.Child("rules").Index(i))...)
	}
	for _, fixed := range bootstrap.MandatoryFlowSchemas {
		if fixed.Name == fs.Name && !equality.Semantic.DeepEqual(fs.Spec, fixed.Spec) {
			errs = append(errs, field.Invalid(at, fs.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", fs.Name)))
		}
	}
	types := make([]string, len(fs.Status.Conditions))
	for i, c := range fs.Status.Conditions {
		types[i] = string(c.Type)
	}
	return append(errs, conditionErrors(types)...)
}

// conditionErrors requires that the conditions' types are set and unique.
func conditionErrors(types []string) (errs field.ErrorList) {
	at := field.NewPath("status", "conditions")
	for i, t := range types {
		if slices.Contains(types[:i], t) {
			errs = append(errs, field.Duplicate(at.Index(i).Child("type"), t))
		}
		if t == "" {
			errs = append(errs, field.Required(at.Index(i).Child("type"), "must not be empty"))
		}
	}
	return errs
}

func ruleErrors(rule *flowcontrolv1.PolicyRulesWithSubjects, at *field.Path) (errs field.ErrorList) {
	if len(rule.Subjects) == 0 {
		errs = append(errs, field.Required(at.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range rule.Subjects {
		errs = append(errs, subjectErrors(&rule.Subjects[i], at.Child("subjects").Index(i))...)
	}
	if len(rule.ResourceRules) == 0 && len(rule.NonResourceRules) == 0 {
		errs = append(errs, field.Required(at, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i := range rule.ResourceRules {
		errs = append(errs, resourceErrors(&rule.ResourceRules[i], at.Child("resourceRules").Index(i))...)
	}
	for i := range rule.NonResourceRules {
		errs = append(errs, pathErrors(&rule.NonResourceRules[i], at.Child("nonResourceRules").Index(i))...)
	}
	return errs
}

// subjectErrors requires the field of the subject's kind, and no other.
func subjectErrors(s *flowcontrolv1.Subject, at *field.Path) (errs field.ErrorList) {
	account, user, group := at.Child("serviceAccount"), at.Child("user"), at.Child("group")
	named := func(path *field.Path, set bool, name string) {
		if !set {
			errs = append(errs,
				field.Required(path, fmt.Sprintf("%s is required when subject kind is '%s'", lastOf(path), s.Kind)))
		} else if name == "" {
			errs = append(errs, field.Required(path.Child("name"), ""))
		}
	}
	switch s.Kind {
	case flowcontrolv1.SubjectKindServiceAccount:
		if a := s.ServiceAccount; a == nil {
			named(account, false, "")
		} else {
			errs = append(errs, accountErrors(a, account)...)
		}
	case flowcontrolv1.SubjectKindUser:
		named(user, s.User != nil, ptr.Deref(s.User, flowcontrolv1.UserSubject{}).Name)
	case flowcontrolv1.SubjectKindGroup:
		named(group, s.Group != nil, ptr.Deref(s.Group, flowcontrolv1.GroupSubject{}).Name)
	default:
		return field.ErrorList{field.NotSupported(at.Child("kind"), s.Kind,
			[]flowcontrolv1.SubjectKind{flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount,
				flowcontrolv1.SubjectKindUser})}
	}
	for _, other := range []struct {
		kind flowcontrolv1.SubjectKind
		set  bool
		path *field.Path
	}{
		{flowcontrolv1.SubjectKindServiceAccount, s.ServiceAccount != nil, account},
		{flowcontrolv1.SubjectKindUser, s.User != nil, user},
		{flowcontrolv1.SubjectKindGroup, s.Group != nil, group},
	} {
		if other.set && other.kind != s.Kind {
			errs = append(errs, field.Forbidden(other.path,
				fmt.Sprintf("%s is forbidden when subject kind is not '%s'", lastOf(other.path), other.kind)))
		}
	}
	return errs
}

// lastOf returns the last element of a path.
func lastOf(path *field.Path) string {
	text := path.String()
	return text[strings.LastIndex(text, ".")+1:]
}

func accountErrors(a *flowcontrolv1.ServiceAccountSubject, at *field.Path) (errs field.ErrorList) {
	if a.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else if a.Name != flowcontrolv1.NameAll {
		errs = append(errs,
			check.Invalid(at.Child("name"), a.Name, apivalidation.ValidateServiceAccountName(a.Name, false))...)
	}
	if a.Namespace == "" {
		return append(errs, field.Required(at.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs,
		check.Invalid(at.Child("namespace"), a.Namespace, apivalidation.ValidateNamespaceName(a.Namespace, false))...)
}

// listErrors requires at least one value, and no other value beside "*". missing and others complete upstream's
// messages.
func listErrors(values []string, at *field.Path, missing, others string) (errs field.ErrorList, all bool) {
	switch {
	case len(values) == 0:
		return field.ErrorList{field.Required(at, missing)}, false
	case !slices.Contains(values, "*"):
		return nil, false
	case len(values) > 1:
		return field.ErrorList{field.Invalid(at, values, "if '*' is present, must not specify other "+others)}, true
	}
	return nil, true
}

func verbErrors(values []string, at *field.Path) field.ErrorList {
	errs, all := listErrors(values, at, "verbs must contain at least one value", "verbs")
	if len(errs) == 0 && !all && slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(verbs(), v) }) {
		return field.ErrorList{field.NotSupported(at, values, verbs())}
	}
	return errs
}

func resourceErrors(rule *flowcontrolv1.ResourcePolicyRule, at *field.Path) field.ErrorList {
	errs := verbErrors(rule.Verbs, at.Child("verbs"))
	groups, _ := listErrors(rule.APIGroups, at.Child("apiGroups"), "resource rules must supply at least one api group",
		"api groups")
	resources, _ := listErrors(rule.Resources, at.Child("resources"), "resource rules must supply at least one resource",
		"resources")
	errs = append(append(errs, groups...), resources...)
	namespaces := at.Child("namespaces")
	if len(rule.Namespaces) == 0 && rule.ClusterScope {
		return errs
	}
	more, all := listErrors(rule.Namespaces, namespaces,
		"resource rules that are not cluster scoped must supply at least one namespace", "namespaces")
	errs = append(errs, more...)
	if all {
		return errs
	}
	for i, ns := range rule.Namespaces {
		for _, text := range apivalidation.ValidateNamespaceName(ns, false) {
			errs = append(errs,
				field.Invalid(namespaces.Index(i), ns, "each member of this list must be '*' or a DNS-1123 label; "+text))
		}
	}
	return errs
}

func pathErrors(rule *flowcontrolv1.NonResourcePolicyRule, at *field.Path) field.ErrorList {
	errs := verbErrors(rule.Verbs, at.Child("verbs"))
	urls := at.Child("nonResourceURLs")
	more, all := listErrors(rule.NonResourceURLs, urls, "nonResourceURLs must contain at least one value",
		"non-resource URLs")
	errs = append(errs, more...)
	if all {
		return errs
	}
	for i, url := range rule.NonResourceURLs {
		if text := urlError(url); text != "" {
			errs = append(errs, field.Invalid(urls.Index(i), url, text))
		}
	}
	return errs
}

func urlError(url string) string {
	stars := strings.Count(url, "*")
	switch {
	case url == "":
		return "must not be empty"
	case !strings.HasPrefix(url, "/"):
		return "must start with slash"
	case strings.Contains(url, " "):
		return "must not contain white-space"
	case strings.Contains(url, "//"):
		return "must not contain double slash"
	case stars > 1, stars == 1 && !strings.HasSuffix(url, "/*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}
