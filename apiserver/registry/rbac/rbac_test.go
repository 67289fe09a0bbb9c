package rbac

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/kindtest"
)

func of(t *testing.T, name string) kind.Resource {
	t.Helper()
	for _, r := range Resources() {
		if r.Kind == name {
			return r
		}
	}
	t.Fatalf("no kind %s", name)
	return kind.Resource{}
}

const toRole = `roleRef: {kind: Role, name: r}`

func TestCreation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, obj, want string }{
		{"Role", `{}`, ""},
		{"Role", `rules: [{verbs: [get], apiGroups: [""], resources: [pods], resourceNames: [a]}]`, ""},
		{"Role", `rules: [{}]`,
			"rules[0].verbs: Required value\nrules[0].apiGroups: Required value\nrules[0].resources: Required value"},
		{"Role", `rules: [{verbs: [get], apiGroups: [""]}]`, "rules[0].resources: Required value"},
		{"Role", `rules: [{verbs: [get], resources: [pods]}]`, "rules[0].apiGroups: Required value"},
		{"Role", `rules: [{verbs: [get], nonResourceURLs: [/healthz]}]`, "rules[0].nonResourceURLs: Invalid value"},
		{"ClusterRole", `rules: [{verbs: [get], nonResourceURLs: [/healthz]}]`, ""},
		{"ClusterRole", `rules: [{verbs: [get], nonResourceURLs: [/healthz], resources: [pods]}]`,
			"rules[0].nonResourceURLs: Invalid value"},
		{"ClusterRole", `rules: [{nonResourceURLs: [/healthz]}]`, "rules[0].verbs: Required value"},
		{"ClusterRole", `aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}`, ""},
		{"ClusterRole", `aggregationRule: {}`, "aggregationRule.clusterRoleSelectors: Required value"},
		{"ClusterRole", `aggregationRule: {clusterRoleSelectors: [{matchLabels: {"a b": c}}]}`,
			"aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value"},
		{"ClusterRole", `aggregationRule: {clusterRoleSelectors: [{matchExpressions: [{key: a, operator: In}]}]}`,
			"aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values: Required value"},
		{"RoleBinding",
			`{roleRef: {kind: ClusterRole, name: "system:node"}, subjects: [{kind: User, name: me}, {kind: Group, ` +
				`name: all}, {kind: ServiceAccount, name: a}]}`, ""},
		{"RoleBinding", `{}`, "roleRef.kind: Unsupported value\nroleRef.name: Required value"},
		{"RoleBinding", `roleRef: {kind: Role, name: a/b}`, "roleRef.name: Invalid value"},
		{"RoleBinding", `roleRef: {kind: Role, name: a, apiGroup: apps}`, "roleRef.apiGroup: Unsupported value"},
		{"RoleBinding", `{` + toRole + `, subjects: [{kind: Robot}]}`,
			"subjects[0].name: Required value\nsubjects[0].kind: Unsupported value"},
		{"RoleBinding", `{` + toRole + `, subjects: [{kind: User, name: a, apiGroup: x}]}`,
			"subjects[0].apiGroup: Unsupported value"},
		{"RoleBinding", `{` + toRole +
			`, subjects: [{kind: ServiceAccount, name: A_b, apiGroup: rbac.authorization.k8s.io}]}`,
			"subjects[0].name: Invalid value\nsubjects[0].apiGroup: Unsupported value"},
		{"ClusterRoleBinding", toRole, "roleRef.kind: Unsupported value"},
		{"ClusterRoleBinding", `{roleRef: {kind: ClusterRole, name: a}, subjects: [{kind: ServiceAccount, name: a}]}`,
			"subjects[0].namespace: Required value"},
		{"ClusterRoleBinding",
			`{roleRef: {kind: ClusterRole, name: a}, subjects: [{kind: ServiceAccount, name: a, namespace: b}]}`, ""},
	} {
		t.Run(c.kind+" "+c.obj, func(t *testing.T) {
			t.Parallel()
			r := of(t, c.kind)
			kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, c.obj), nil, ""), c.want)
		})
	}
}

func TestRoleRefIsImmutable(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"RoleBinding", "ClusterRoleBinding"} {
		r := of(t, name)
		old := kindtest.Create(t, r, `roleRef: {kind: ClusterRole, name: a}`)
		next := kindtest.Update(t, r, old, `{roleRef: {kind: ClusterRole, name: b}}`, "")
		kindtest.WantErrors(t, kindtest.Validate(r, next, old, ""), "roleRef: Invalid value")
		more := kindtest.Update(t, r, old, `{roleRef: {kind: ClusterRole, name: a}, subjects: [{kind: User, name: me}]}`, "")
		kindtest.WantErrors(t, kindtest.Validate(r, more, old, ""))
	}
}

func TestAPIGroupsAreDefaulted(t *testing.T) {
	t.Parallel()
	b := kindtest.Create(t, of(t, "RoleBinding"), `{`+toRole+
		`, subjects: [{kind: User, name: a}, {kind: Group, name: b}, {kind: ServiceAccount, name: c}]}`).(*rbacv1.RoleBinding)
	if b.RoleRef.APIGroup != rbacv1.GroupName || b.Subjects[0].APIGroup != rbacv1.GroupName ||
		b.Subjects[1].APIGroup != rbacv1.GroupName || b.Subjects[2].APIGroup != "" {
		t.Errorf("got %+v", b)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, r := range Resources() {
		if errs := r.NameErrors("system:controller:x_Y", false); len(errs) > 0 {
			t.Errorf("%s: %v", r.Kind, errs)
		}
		for _, bad := range []string{"a/b", "..", "a%b"} {
			if len(r.NameErrors(bad, false)) == 0 {
				t.Errorf("%s may be called %s", r.Kind, bad)
			}
		}
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	const meta = "metadata: {name: x, creationTimestamp: '2026-01-01T11:00:00Z'}\n"
	const binding = meta +
		"roleRef: {kind: ClusterRole, name: r}\nsubjects: [{kind: User, name: a}, {kind: User, name: b}, {kind: Group, " +
		"name: c}, {kind: ServiceAccount, namespace: d, name: e}]"
	for _, c := range []struct{ kind, headings, obj, row string }{
		{"Role", "Name|Created At / ", meta, "x|2026-01-01T11:00:00Z"},
		{"ClusterRole", "Name|Created At / ", meta, "x|2026-01-01T11:00:00Z"},
		{"RoleBinding", "Name|Role|Age / Users|Groups|ServiceAccounts", binding, "x|ClusterRole/r|60m|a, b|c|d/e"},
		{"ClusterRoleBinding", "Name|Role|Age / Users|Groups|ServiceAccounts", binding, "x|ClusterRole/r|60m|a, b|c|d/e"},
	} {
		r := of(t, c.kind)
		if got := kindtest.Headings(r.Columns); got != c.headings {
			t.Errorf("%s: %s", c.kind, got)
		}
		if got := kindtest.Row(t, r.Columns, kindtest.Create(t, r, c.obj)); got != c.row {
			t.Errorf("%s: got %s, want %s", c.kind, got, strings.TrimSpace(c.row))
		}
	}
}
