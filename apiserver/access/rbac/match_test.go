package rbac

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"monopod/apiserver/auth"
)

func words(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.ReplaceAll(s, "core", ""), ",")
}

func TestAllows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		verbs, groups, resources, names, urls string
		ask                                   string // verb group resource[/sub] name, or verb path
		want                                  bool
	}{
		{"get", "core", "pods", "", "", "get core pods a", true},
		{"get,list", "core", "pods", "", "", "list core pods ", true},
		{"get", "core", "pods", "", "", "list core pods ", false},
		{"*", "core", "pods", "", "", "escalate core pods a", true},
		{"get", "core", "pods", "", "", "get apps pods a", false},
		{"get", "*", "pods", "", "", "get apps pods a", true},
		{"get", "core", "*", "", "", "get core secrets a", true},
		{"get", "core", "*", "", "", "get core pods/log a", true},
		{"get", "core", "pods", "", "", "get core pods/log a", false},
		{"get", "core", "pods/log", "", "", "get core pods/log a", true},
		{"get", "core", "pods/log", "", "", "get core pods a", false},
		{"update", "apps", "*/scale", "", "", "update apps deployments/scale a", true},
		{"update", "apps", "*/scale", "", "", "update apps deployments/status a", false},
		{"update", "apps", "*/scale", "", "", "update apps deployments a", false},
		{"update", "apps", "deployments/*", "", "", "update apps deployments/scale a", false},
		{"get", "core", "pods", "a,b", "", "get core pods b", true},
		{"get", "core", "pods", "a,b", "", "get core pods c", false},
		{"list", "core", "pods", "a", "", "list core pods ", false},
		{"get", "", "", "", "/metrics", "get /metrics", true},
		{"get", "", "", "", "/metrics", "post /metrics", false},
		{"get", "", "", "", "/healthz/*", "get /healthz/ping", true},
		{"get", "", "", "", "/healthz/*", "get /healthz", false},
		{"get", "", "", "", "*", "get /any", true},
		{"*", "*", "*", "", "", "get /any", false},
		{"*", "", "", "", "*", "get core pods a", false},
	} {
		rule := rbacv1.PolicyRule{Verbs: words(c.verbs), APIGroups: words(c.groups), Resources: words(c.resources),
			ResourceNames: words(c.names), NonResourceURLs: words(c.urls)}
		if got := allows(&rule, asked(c.ask)); got != c.want {
			t.Errorf("%+v: %q is %t", c, c.ask, got)
		}
	}
}

// An access review may ask for a subresource as part of the resource's name, as prometheus-operator does; rules that
// name a subresource in another way do not match it.
func TestAllowsSubresourceInResource(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]bool{"pods/log": true, "*": true, "pods": false, "*/log": false} {
		r := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{rule}}
		if got := allows(&r, &auth.Attributes{Verb: "get", Resource: "pods/log"}); got != want {
			t.Errorf("a rule for %s: %t, want %t", rule, got, want)
		}
	}
}

// asked parses the field ask of a case.
func asked(text string) *auth.Attributes {
	w := strings.Split(text, " ")
	if len(w) == 2 {
		return &auth.Attributes{Verb: w[0], Path: w[1]}
	}
	resource, sub, _ := strings.Cut(w[2], "/")
	return &auth.Attributes{Verb: w[0], Group: strings.ReplaceAll(w[1], "core", ""), Resource: resource, Subresource: sub,
		Name: w[3]}
}
