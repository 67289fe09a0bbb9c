// Package policy defines upstream's default roles and bindings, and maintains them as upstream does.
//
// They are defined in policy.txt, which is parsed at start and not kept in memory.
package policy

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/clusterrole"
)

//go:embed policy.txt
var text string

const aggregateLabel = "rbac.authorization.k8s.io/aggregate-to-"

// Defaults returns the objects that policy.txt defines. Aggregated roles have the rules that their controller would
// give them, so that they can be used from the first request on.
func Defaults() ([]client.Object, error) {
	var all []client.Object
	var rules *[]rbacv1.PolicyRule // of the last role
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		var err error
		switch {
		case len(words) == 0 || words[0][0] == '#':
		case words[0] == "role" && len(words) > 1:
			var role client.Object
			role, rules = newRole(words[1], words[2:])
			all = append(all, role)
		case words[0] == "bind":
			var b client.Object
			b, err = newBinding(strings.TrimSpace(line))
			all = append(all, b)
		case rules != nil && len(words) >= 3:
			*rules = append(*rules, newRule(words))
		default:
			err = fmt.Errorf("not understood")
		}
		if err != nil {
			return nil, fmt.Errorf("policy.txt: %q: %w", strings.TrimSpace(line), err)
		}
	}
	return all, aggregate(all)
}

// aggregate sets the rules of the aggregated roles. A role may aggregate one that is defined after it.
func aggregate(all []client.Object) error {
	var roles []*rbacv1.ClusterRole
	for _, o := range all {
		role, ok := o.(*rbacv1.ClusterRole)
		if ok {
			roles = append(roles, role)
		}
	}
	for _, role := range slices.Backward(roles) {
		if role.AggregationRule == nil {
			continue
		}
		var err error
		if role.Rules, err = clusterrole.Aggregate(role, roles); err != nil {
			return fmt.Errorf("policy.txt: role %s: %w", role.Name, err)
		}
	}
	return nil
}

func metaOf(name string) metav1.ObjectMeta {
	namespace, name := split(name)
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
}

// split splits NAMESPACE/NAME; a name without a slash has no namespace.
func split(name string) (namespace, rest string) {
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		return namespace, rest
	}
	return "", name
}

// newRole also returns the field for its rules.
func newRole(name string, words []string) (client.Object, *[]rbacv1.PolicyRule) {
	m := metaOf(name)
	if m.Namespace != "" {
		role := &rbacv1.Role{ObjectMeta: m}
		return role, &role.Rules
	}
	role := &rbacv1.ClusterRole{ObjectMeta: m}
	for i := 0; i+1 < len(words); i += 2 {
		label := aggregateLabel + words[i+1]
		if words[i] == "labelled" {
			role.Labels[label] = "true"
			continue
		}
		role.AggregationRule = &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{label: "true"}}}}
	}
	return role, &role.Rules
}

// newRule parses VERBS GROUPS RESOURCES [NAMES] or VERBS url PATHS.
func newRule(words []string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{Verbs: verbs(words[0])}
	if words[1] == "url" {
		r.NonResourceURLs = strings.Split(words[2], ",")
		return r
	}
	r.APIGroups, r.Resources = strings.Split(words[1], ","), strings.Split(words[2], ",")
	if i := slices.Index(r.APIGroups, "core"); i >= 0 {
		r.APIGroups[i] = ""
	}
	if len(words) > 3 {
		r.ResourceNames = strings.Split(words[3], ",")
	}
	return r
}

func verbs(word string) []string {
	switch word {
	case "read":
		word = "get,list,watch"
	case "write":
		word = "create,delete,deletecollection,patch,update"
	case "all":
		word = "create,delete,deletecollection,get,list,patch,update,watch"
	}
	return strings.Split(word, ",")
}

// newBinding parses bind NAME to ROLE: KIND SUBJECT, ...
func newBinding(line string) (client.Object, error) {
	head, tail, _ := strings.Cut(line, ": ")
	words := strings.Fields(strings.TrimSuffix(head, ":"))
	if len(words) != 4 || words[2] != "to" {
		return nil, fmt.Errorf("want bind NAME to ROLE")
	}
	subjects, err := newSubjects(tail)
	if err != nil {
		return nil, err
	}
	m := metaOf(words[1])
	namespace, role := split(words[3])
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	if m.Namespace == "" {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: m, RoleRef: ref, Subjects: subjects}, nil
	}
	if namespace != "" {
		ref.Kind = "Role"
	}
	return &rbacv1.RoleBinding{ObjectMeta: m, RoleRef: ref, Subjects: subjects}, nil
}

func newSubjects(text string) (all []rbacv1.Subject, err error) {
	for part := range strings.SplitSeq(text, ",") {
		kind, name, ok := strings.Cut(strings.TrimSpace(part), " ")
		if part == "" {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("subject %q: want KIND NAME", part)
		}
		s := rbacv1.Subject{Kind: kind, Name: name}
		if kind == rbacv1.ServiceAccountKind {
			s.Namespace, s.Name = split(name)
		} else {
			s.APIGroup = rbacv1.GroupName
		}
		all = append(all, s)
	}
	return all, nil
}
