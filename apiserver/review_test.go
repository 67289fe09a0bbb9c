package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	"monopod/apiserver/auth"
)

const (
	mayReview = "/apis/authorization.k8s.io/v1/"
	whoReview = "/apis/authentication.k8s.io/v1/"
)

// at returns a value of a decoded response by its path.
func at(v any, path string) string {
	for part := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[part]
	}
	return fmt.Sprint(v)
}

func TestReviews(t *testing.T) {
	t.Parallel()
	a := serveRBAC(t)
	a.until(201, "POST", rbacRoles, fmt.Sprintf(roleOf, "reader", "pods", "get"), asJSON)
	a.until(201, "POST", rbacBindings, bindingTo("b", "Role/reader", "joe"), asJSON)
	joe, admin := "Authorization: Bearer joe+dev", "Authorization: Bearer "+token
	a.until(404, "GET", pods+"/none", "", joe)
	get := `"resourceAttributes":{"verb":"get","resource":"pods","namespace":"default"}`
	for name, c := range map[string]struct {
		who, path, body string
		code            int
		at, want        string
	}{
		"own permission": {joe, mayReview + "selfsubjectaccessreviews", `{"spec":{` + get + `}}`, 201, "status.allowed",
			"true"},
		"why": {joe, mayReview + "selfsubjectaccessreviews", `{"spec":{` + get + `}}`, 201, "status.reason",
			`RBAC: allowed by RoleBinding "b/default" of Role "reader" to User "joe"`},
		"own permission, missing": {joe, mayReview + "selfsubjectaccessreviews",
			`{"spec":{"resourceAttributes":{"verb":"list","resource":"pods"}}}`, 201, "status.allowed", "false"},
		"own permission for a path": {joe, mayReview + "selfsubjectaccessreviews",
			`{"spec":{"nonResourceAttributes":{"verb":"get","path":"/api"}}}`, 201, "status.allowed", "true"},
		"empty spec": {joe, mayReview + "selfsubjectaccessreviews", `{"spec":{}}`, 422, "reason", "Invalid"},
		"resource and path": {joe, mayReview + "selfsubjectaccessreviews", `{"spec":{` + get +
			`,"nonResourceAttributes":{"verb":"get"}}}`, 422, "reason", "Invalid"},
		"review with a name": {joe, mayReview + "selfsubjectaccessreviews", `{"metadata":{"name":"x"},"spec":{` + get + `}}`,
			422, "reason", "Invalid"},
		"user may not review others": {joe, mayReview + "subjectaccessreviews", `{"spec":{` + get + `,"user":"x"}}`, 403,
			"reason",
			"Forbidden"},
		"joe's permission": {admin, mayReview + "subjectaccessreviews", `{"spec":{` + get + `,"user":"joe"}}`, 201,
			"status.allowed", "true"},
		"jack's permission": {admin, mayReview + "subjectaccessreviews", `{"spec":{` + get + `,"user":"jack"}}`, 201,
			"status.allowed", "false"},
		"permission of system:masters": {admin, mayReview + "subjectaccessreviews", `{"spec":{` + get +
			`,"groups":["system:masters"]}}`, 201, "status.allowed", "true"},
		"without user": {admin, mayReview + "subjectaccessreviews", `{"spec":{` + get + `}}`, 422, "reason", "Invalid"},
		"joe's permission in a namespace": {admin, mayReview + "namespaces/default/localsubjectaccessreviews",
			`{"spec":{` + get +
				`,"user":"joe"}}`, 201, "status.allowed", "true"},
		"joe's permission in another namespace": {admin, mayReview + "namespaces/kube-system/localsubjectaccessreviews",
			`{"spec":{` + get +
				`,"user":"joe"}}`, 422, "reason", "Invalid"},
		"own rules": {joe, mayReview + "selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`, 201,
			"status.resourceRules", "resources:[pods] verbs:[get]"},
		"own rules without a namespace": {joe, mayReview + "selfsubjectrulesreviews", `{"spec":{}}`, 400, "reason",
			"BadRequest"},
		"own user": {joe, whoReview + "selfsubjectreviews", `{}`, 201, "status.userInfo",
			"map[groups:[dev system:authenticated] username:joe]"},
		"user of a token": {admin, whoReview + "tokenreviews", `{"spec":{"token":"jack+ops"}}`, 201, "status.user",
			"map[groups:[ops system:authenticated] username:jack]"},
		"valid token": {admin, whoReview + "tokenreviews", `{"spec":{"token":"jack"}}`, 201, "status.authenticated",
			"true"},
		"token for another audience": {admin, whoReview + "tokenreviews", `{"spec":{"token":"jack","audiences":["vault"]}}`,
			201,
			"status.authenticated", "<nil>"},
		"no token": {admin, whoReview + "tokenreviews", `{"spec":{}}`, 400, "reason", "BadRequest"},
	} {
		code, out := a.read("POST", c.path, c.body, asJSON, c.who)
		if got := at(out, c.at); code != c.code || !strings.Contains(got, c.want) {
			t.Errorf("%s: %d %s %q, want %q", name, code, c.at, got, c.want)
		}
	}
}

// A kubelet allows what a review says. It may allow calls of an API server to itself, and the API server's certificate
// has no permissions in the API.
func TestReviewsOfKubelets(t *testing.T) {
	t.Parallel()
	a := serveRBAC(t)
	a.until(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"metadata":{"name":"reviewer"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",`+
			`"name":"system:auth-delegator"},"subjects":[{"kind":"User","name":"joe"}]}`, asJSON)
	review := func(user, groups, group, resource, subresource, name string) string {
		return fmt.Sprintf(`{"spec":{"user":%q,"groups":[%q],"resourceAttributes":{"verb":"create","version":"v1",`+
			`"group":%q,"resource":%q,"subresource":%q,"name":%q}}}`, user, groups, group, resource, subresource, name)
	}
	server, servers := auth.KubeletClient.Name, auth.KubeletClient.Groups[0]
	call := review(server, servers, "", "nodes", "proxy", "n1")
	node := "system:node:n1+system:nodes"
	a.until(201, "POST", mayReview+"subjectaccessreviews", call, asJSON, "Authorization: Bearer joe")
	for name, c := range map[string]struct{ who, body, allowed string }{
		"the node":                     {node, call, "true"},
		"the node, about logs":         {node, review(server, servers, "", "nodes", "log", "n1"), "true"},
		"another node":                 {"system:node:n2+system:nodes", call, "false"},
		"a user":                       {"joe", call, "false"},
		"a user with a node's name":    {"system:node:n1+dev", call, "false"},
		"an administrator":             {token, call, "false"},
		"about another user":           {node, review("jack", servers, "", "nodes", "proxy", "n1"), "false"},
		"about a user with that name":  {node, review(server, "dev", "", "nodes", "proxy", "n1"), "false"},
		"about the Node itself":        {node, review(server, servers, "", "nodes", "", "n1"), "false"},
		"about all nodes":              {node, review(server, servers, "", "nodes", "proxy", ""), "false"},
		"about another API group":      {node, review(server, servers, "metrics.k8s.io", "nodes", "proxy", "n1"), "false"},
		"about a pod":                  {node, review(server, servers, "", "pods", "exec", "n1"), "false"},
		"about the admin of a cluster": {node, review("jack", "system:masters", "", "nodes", "proxy", "n1"), "true"},
	} {
		code, out := a.read("POST", mayReview+"subjectaccessreviews", c.body, asJSON, "Authorization: Bearer "+c.who)
		if got := at(out, "status.allowed"); got != c.allowed && (code != 403 || c.allowed == "true") {
			t.Errorf("%s: %d, allowed %s, want %s", name, code, got, c.allowed)
		}
	}
}

func TestComponentStatuses(t *testing.T) {
	t.Parallel()
	a := serve(t)
	_, list := a.read("GET", "/api/v1/componentstatuses", "")
	if got := fmt.Sprint(len(list["items"].([]any))); got != "3" {
		t.Errorf("%s components", got)
	}
	if code, one := a.read("GET", "/api/v1/componentstatuses/scheduler", ""); code != 200 ||
		!strings.Contains(fmt.Sprint(one["conditions"]), "Healthy") {
		t.Errorf("%d %v", code, one)
	}
	_, broken := a.read("GET", "/api/v1/componentstatuses/controller-manager", "")
	if got := fmt.Sprint(broken["conditions"]); !strings.Contains(got, "error:on purpose") {
		t.Errorf("a failed check shows as %s", got)
	}
	if code, _ := a.read("GET", "/api/v1/componentstatuses/none", ""); code != 404 {
		t.Errorf("an unknown component: %d", code)
	}
}
