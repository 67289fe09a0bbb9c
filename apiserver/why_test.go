package apiserver_test

import (
	"strings"
	"testing"

	"monopod/apiserver/auth"
)

// The server explains an object with the rights of the caller: it omits objects that the caller may not read, and says
// so.
func TestWhy(t *testing.T) {
	t.Parallel()
	a := serveFor(t, decide(func(a auth.Attributes) (bool, string, error) {
		return a.Path == "" && (a.Resource == "pods" && a.Subresource == "" || a.Resource == "configmaps"), "", nil
	}))
	admin := "Authorization: Bearer " + token
	if code, out := a.read("POST", pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"x"}]}}`,
		asJSON, admin); code != 201 {
		t.Fatalf("%d %v", code, out)
	}
	a.define(widgets)
	if code, out := a.read("POST", "/apis/example.com/v1/namespaces/default/widgets",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1}}`, asJSON,
		admin); code != 201 {
		t.Fatalf("%d %v", code, out)
	}
	for name, c := range map[string]struct {
		who, query string
		code       int
		at, want   string
	}{
		"admin":          {admin, "kind=pod&name=p", 200, "sentence", "Pod p has been waiting for the scheduler"},
		"the kind":       {admin, "kind=Pod&name=p&namespace=default", 200, "sentence", "Pod p"},
		"the short name": {admin, "kind=po&name=p", 200, "sentence", "Pod p"},
		"with the group": {admin, "kind=deployments.apps&name=none", 404, "reason", "NotFound"},
		"another group":  {admin, "kind=deployments.acme.com&name=p", 400, "message", "must be a kind"},
		"custom": {admin, "kind=widget&name=w", 200, "sentence",
			"Nothing is known to be wrong with Widget w"},
		"custom, plural":            {admin, "kind=widgets&name=w", 200, "sentence", "Widget w"},
		"custom, with the group":    {admin, "kind=widgets.example.com&name=w", 200, "sentence", "Widget w"},
		"custom, with version":      {admin, "kind=Widget.v2.example.com&name=w", 200, "sentence", "Widget w"},
		"custom, another group":     {admin, "kind=widget.acme.com&name=w", 400, "message", "must be a kind"},
		"misspelt":                  {admin, "kind=widgte&name=w", 400, "message", "did you mean widget"},
		"all":                       {admin, "", 200, "problems", "Pod p has been waiting for the scheduler"},
		"all of a namespace":        {admin, "namespace=kube-system", 200, "problems", "[]"},
		"all that jane may read":    {janeSays, "", 200, "hidden", `User "jane" cannot list resource "deployments"`},
		"no name":                   {admin, "kind=pod", 400, "message", "the parameter name is required"},
		"a kind that is not stored": {admin, "kind=subjectaccessreviews&name=p", 400, "message", "must be a kind"},
		"without a namespace": {admin, "kind=ns&name=default&namespace=x", 200, "sentence",
			"Nothing is known to be wrong with Namespace default"},
		"in another namespace": {admin, "kind=pod&name=p&namespace=kube-system", 404, "reason", "NotFound"},
		"jane":                 {janeSays, "kind=pod&name=p", 200, "sentence", "Pod p has been waiting for the scheduler"},
		"jane sees less": {janeSays, "kind=pod&name=p", 200, "evidence",
			`not known: events is forbidden: User "jane" cannot list resource "events"`},
		"jane may not read it": {janeSays, "kind=secret&name=none", 403, "message", `cannot get resource "secrets"`},
		"invalid token":        {"Authorization: Bearer x", "kind=pod&name=p", 401, "reason", "Unauthorized"},
	} {
		code, out := a.read("GET", "/monopod/why?"+c.query, "", c.who)
		if got := at(out, c.at); code != c.code || !strings.Contains(got, c.want) {
			t.Errorf("%s: %d %s %q, want %d %q", name, code, c.at, got, c.code, c.want)
		}
	}
}

// The server lists the objects of a kind that are not well, as far as the caller may list the kind.
func TestHealthOfObjects(t *testing.T) {
	t.Parallel()
	a := serveFor(t, decide(func(a auth.Attributes) (bool, string, error) {
		return a.Path == "" && a.Resource == "pods" && a.Namespace == "default", "", nil
	}))
	admin := "Authorization: Bearer " + token
	_, pod := a.read("POST", pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"x"}]}}`, asJSON,
		admin)
	uid := at(pod, "metadata.uid")
	for name, c := range map[string]struct {
		who, query string
		code       int
		at, want   string
	}{
		"admin":                {admin, "kind=pods", 200, uid, "not started"},
		"one namespace":        {admin, "kind=po&namespace=default", 200, uid, "wait"},
		"another namespace":    {admin, "kind=pods&namespace=kube-system", 200, uid, "<nil>"},
		"another kind":         {admin, "kind=configmaps", 200, uid, "<nil>"},
		"no kind":              {admin, "kind=nonsense", 400, "message", "must be a kind"},
		"jane":                 {janeSays, "kind=pods&namespace=default", 200, uid, "not started"},
		"jane, all namespaces": {janeSays, "kind=pods", 403, "message", `cannot list resource "pods"`},
	} {
		code, out := a.read("GET", "/monopod/health?"+c.query, "", c.who)
		if got := at(out, c.at); code != c.code || !strings.Contains(got, c.want) {
			t.Errorf("%s: %d %s %q, want %d %q", name, code, c.at, got, c.code, c.want)
		}
	}
}
