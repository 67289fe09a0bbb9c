package web_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/testdata/harness"
)

// The page shows what a token may list, and only the buttons that it may use.
func TestRights(t *testing.T) {
	a := serve(t)
	create(t, a, machine())
	a.runs(t, create(t, a, podNamed("web-1")), 0)
	other := podNamed("other")
	other.Namespace = metav1.NamespaceSystem
	create(t, a, other)
	create(t, a, replicaSet("web", 2))
	a.revoke(t, auth.Viewers) // so that the view token has only the rights that the test grants
	grant(t, a, "sees", "",
		&rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"", "apps"},
			Resources: []string{"pods", "events", "replicasets"}})
	p := open(t, a.url)

	p.enter(viewToken)
	p.sees(`%s?.includes("You do not see everything: ")`, text(".overview"))
	p.visit("#/pods")
	p.sees(`%s === "Running"`, cell("web-1", ".c-status"))
	const kinds = `[...document.querySelectorAll("#nav li a")].map((a) => a.textContent).sort().join()`
	p.sees(kinds + ` === "Events,Pods,ReplicaSets"`)
	p.sees(`document.querySelector("#create").hidden`)
	p.visit("#/nodes")
	p.sees(`%s === "You are not allowed to list nodes."`, text(".empty"))
	p.visit("#/pods/default/web-1")
	p.sees(`%s?.includes("Overview")`, text(".tabs"))
	const buttons = `[...document.querySelectorAll(".bar button")].filter((b) => b.checkVisibility()).length`
	p.sees(buttons + ` === 0 && ![...document.querySelectorAll(".tabs a")].some((a) => a.textContent === "Logs")`)
	p.press(".tabs", "YAML")
	p.sees(`document.querySelector(".editor")?.readOnly && ![...document.querySelectorAll("main button")].some((b) => ` +
		`b.textContent === "Review changes")`)

	// A role in one namespace shows buttons there.
	p.click("#sign-out")
	grant(t, a, "edits", "default",
		&rbacv1.PolicyRule{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		&rbacv1.PolicyRule{Verbs: []string{"patch"}, APIGroups: []string{"apps"}, Resources: []string{"replicasets/scale"}})
	p.enter(viewToken)
	p.visit("#/pods/default/web-1")
	p.sees(`%s === "Delete"`, text(".bar"))
	p.visit("#/replicasets.apps/default/web")
	p.sees(`%s === "Scale"`, text(".bar"))
	p.visit("#/pods/kube-system/other")
	p.sees(`%s === "other" && %s?.includes("Overview") && `+buttons+` === 0`, text("#title"), text(".tabs"))

	// With a role in one namespace, the page lists its objects. A user can choose another namespace.
	p.click("#sign-out")
	a.revoke(t, "sees")
	grant(t, a, "sees-default", "default",
		&rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}})
	p.enter(viewToken)
	p.visit("#/pods")
	p.sees(`%s === "1 in default"`, text(".count"))
	grant(t, a, "sees-system", metav1.NamespaceSystem,
		&rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}})
	p.put("#namespace", "…")
	p.sees(`document.querySelector("dialog [name=text]")`)
	p.put("dialog [name=text]", metav1.NamespaceSystem)
	p.press("dialog", "Show")
	p.sees(`%s && %s === "1 in kube-system"`, row("other"), text(".count"))
	p.sees(`document.querySelector("#namespace").value === "kube-system"`)

	// Without any role the page shows explanations instead of errors.
	p.click("#sign-out")
	p.enter(robotToken)
	for _, kind := range []string{"pods", "events", "nodes"} {
		p.visit("#/" + kind)
		p.sees(`%s === "You are not allowed to list %s."`, text(".empty"), kind)
	}
	if got := p.value(rows); got != 0.0 {
		t.Errorf("%v rows", got)
	}
	p.clean()
}

// revoke removes the role of this name in all namespaces, and waits until it takes effect.
func (a *api) revoke(t *testing.T, name string) {
	t.Helper()
	if _, err := a.reg.Delete(t.Context(),
		client.Ref{Resource: rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), Name: name},
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if !harness.Eventually(harness.Enough, func() bool {
		return !a.allows(t, &rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
			"")
	}) {
		t.Fatalf("%s: the role is still in effect", name)
	}
}

// allows reports whether the viewer has the first permission of the rule.
func (a *api) allows(t *testing.T, r *rbacv1.PolicyRule, namespace string) bool {
	t.Helper()
	resource, subresource, _ := strings.Cut(r.Resources[0], "/")
	body := fmt.Sprintf(
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":%q,`+
			`"group":%q,"resource":%q,"subresource":%q,"namespace":%q}}}`,
		r.Verbs[0], r.APIGroups[0], resource, subresource, namespace)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+viewToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := a.server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return err == nil && strings.Contains(string(answer), `"allowed":true`)
}

// grant binds a role with the rules to the viewer, for one namespace or for all, and waits until it takes effect.
func grant(t *testing.T, a *api, name, namespace string, rules ...*rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, r := range rules {
		role.Rules = append(role.Rules, *r)
	}
	create(t, a, role)
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: auth.Viewer.Name}}
	if namespace == "" {
		create(t, a, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
	} else {
		create(t, a, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
	}
	for _, r := range rules {
		if !harness.Eventually(harness.Enough, func() bool { return a.allows(t, r, namespace) }) {
			t.Fatalf("%s: the role does not take effect", name)
		}
	}
}

// The page lists and filters ten thousand pods in time.
func TestTenThousandPods(t *testing.T) {
	a := serve(t)
	create(t, a, machine())
	const many = 10_000
	for i := range many {
		a.runs(t, create(t, a, podNamed(fmt.Sprintf("crowd-%05d", i))), 0)
	}
	p := open(t, a.url)
	p.enter(token)
	p.visit("#/pods")
	const shown, all = rows + ` > 10`, `document.querySelector(".count")?.innerText === "10000" && ` + rows + ` > 10`
	p.sees(all)

	for n := range 3 { // as after a reload, from the start of the navigation
		p.load(fmt.Sprintf("%s/?%d#/pods", a.url, n))
		p.value(`{const look = () => { if (` + shown +
			`) window.shownAt = performance.now(); else requestAnimationFrame(look); }; look(); true}`)
		p.sees(`window.shownAt`)
		p.measured("rows of 10,000 pods", `window.shownAt`, 2*time.Second)
	}
	p.sees(all)
	for range 3 {
		for _, words := range []string{"crowd-099 running", "app=web 4", "none of them", ""} {
			p.value(fmt.Sprintf(`{
				const filter = document.querySelector("#filter"), begin = performance.now();
				window.filtered = 0;
				filter.value = %q;
				filter.dispatchEvent(new Event("input"));
				requestAnimationFrame(() => setTimeout(() => window.filtered = performance.now() - begin));
				true
			}`, words))
			p.sees(`window.filtered`)
			p.measured("filter "+words, `window.filtered`, 100*time.Millisecond)
		}
	}
	p.sees(all)
	p.clean()
}

// measured compares times in milliseconds, measured by the page, with three times their targets on two idle
// cores, because the server has the race detector here. docs/benchmarks.md has the figures without it.
func (p page) measured(what, expression string, most time.Duration) {
	p.t.Helper()
	ms, _ := p.value(expression).(float64)
	took := time.Duration(ms * float64(time.Millisecond))
	p.t.Logf("%s: %v", what, took.Round(time.Millisecond))
	if took > 3*most && took > harness.Scaled(3*most) {
		p.t.Errorf("%s took %v, want at most %v", what, took, most)
	}
}
