package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"monopod/apiserver"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/health"
	"monopod/apiserver/registry"
	"monopod/store"
)

// decide is a function that implements Authorizer.
type decide func(a auth.Attributes) (bool, string, error)

func (d decide) Authorize(_ context.Context, a auth.Attributes) (bool, string, error) { return d(a) }

var (
	jane     = auth.User{Name: "jane", Groups: []string{"dev", auth.Authenticated}}
	janeSays = "Authorization: Bearer jane"
)

// serveFor is a server that authorizes users other than the admin with a.
func serveFor(t *testing.T, a auth.Authorizer) API {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv, err := apiserver.New(t.Context(), apiserver.Config{
		Registry: reg, Authorizer: a, Authenticator: auth.Any(auth.Token(token, auth.Admin), auth.Token("jane", jane)),
		Checks: []health.Check{{Name: "broken", Ready: true,
			Ask: func(context.Context) error { return errors.New("on purpose") }}},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(srv.Handler())
	t.Cleanup(h.Close)
	return API{t, h.URL, h.Client(), reg}
}

func describe(a auth.Attributes) string {
	if a.Path != "" {
		return a.Verb + " path " + a.Path
	}
	return fmt.Sprintf("%s %s/%s %s/%s ns=%s name=%s", a.Verb, a.Group, a.Version, a.Resource, a.Subresource, a.Namespace,
		a.Name)
}

// The authorizer gets the attributes of every request, also if its path does not exist.
func TestAttributes(t *testing.T) {
	t.Parallel()
	var asked []string
	a := serveFor(t, decide(func(a auth.Attributes) (bool, string, error) {
		asked = append(asked, describe(a))
		return false, "", nil
	}))
	for request, want := range map[string]string{
		"GET /api/v1/namespaces/x/pods": "list /v1 pods/ ns=x name=",
		"GET /api/v1/pods":              "list /v1 pods/ ns= name=",
		"GET /api/v1/pods?watch=1":      "watch /v1 pods/ ns= name=",
		"GET /api/v1/pods?watch=true&fieldSelector=metadata.name%3Da":      "watch /v1 pods/ ns= name=a",
		"GET /api/v1/pods?fieldSelector=metadata.name%3Da%2Fb":             "list /v1 pods/ ns= name=",
		"GET /api/v1/pods?fieldSelector=metadata.name!%3Da":                "list /v1 pods/ ns= name=",
		"GET /api/v1/namespaces/x/pods/a":                                  "get /v1 pods/ ns=x name=a",
		"HEAD /api/v1/namespaces/x/pods/a":                                 "",
		"GET /api/v1/namespaces/x/pods/a?watch=1":                          "get /v1 pods/ ns=x name=a",
		"GET /api/v1/namespaces/x/pods/a/log":                              "get /v1 pods/log ns=x name=a",
		"OPTIONS /api/v1/namespaces/x/pods/a/proxy/":                       " /v1 pods/proxy ns=x name=a",
		"BREW /api/v1/namespaces/x/services/a/proxy":                       "",
		"POST /api/v1/namespaces/x/pods/a/exec":                            "create /v1 pods/exec ns=x name=a",
		"POST /api/v1/namespaces/x/pods":                                   "create /v1 pods/ ns=x name=",
		"PUT /api/v1/namespaces/x/pods/a/status":                           "update /v1 pods/status ns=x name=a",
		"PATCH /apis/apps/v1/namespaces/x/replicasets/a/scale":             "patch apps/v1 replicasets/scale ns=x name=a",
		"DELETE /apis/apps/v1/namespaces/x/replicasets":                    "deletecollection apps/v1 replicasets/ ns=x name=",
		"DELETE /apis/apps/v1/namespaces/x/replicasets/a":                  "delete apps/v1 replicasets/ ns=x name=a",
		"DELETE /api/v1/namespaces/x/pods?fieldSelector=metadata.name%3Da": "deletecollection /v1 pods/ ns=x name=",
		"GET /api/v1/namespaces":                                           "list /v1 namespaces/ ns= name=",
		"GET /api/v1/namespaces/x":                                         "get /v1 namespaces/ ns=x name=x",
		"PUT /api/v1/namespaces/x/finalize":                                "update /v1 namespaces/finalize ns=x name=x",
		"PUT /api/v1/namespaces/x/status":                                  "update /v1 namespaces/status ns=x name=x",
		"GET /api/v1/nodes/n1":                                             "get /v1 nodes/ ns= name=n1",
		"GET /api/v1/unicorns":                                             "list /v1 unicorns/ ns= name=",
		"GET /apis/zoo/v1/namespaces/x/unicorns/u":                         "get zoo/v1 unicorns/ ns=x name=u",
		"GET /api/v1/namespaces/x/pods/..%2f..%2fkube-system%2fsecrets%2fboot": "get /v1 pods/ ns=x " +
			"name=../../kube-system/secrets/boot",
		"GET /api/v1/namespaces/x%2fy/pods": "list /v1 pods/ ns=x/y name=",
		"GET /api":                          "get path /api",
		"GET /api/v1":                       "get path /api/v1",
		"GET /apis/apps":                    "get path /apis/apps",
		"GET /apis/apps/v1":                 "get path /apis/apps/v1",
		"GET /openapi/v3":                   "get path /openapi/v3",
		"GET /metrics":                      "get path /metrics",
		"GET /configz":                      "get path /configz",
		"POST /monopod/snapshot":            "post path /monopod/snapshot",
		"GET /no/such/path":                 "get path /no/such/path",
	} {
		asked = nil
		method, path, _ := strings.Cut(request, " ")
		resp := a.do(method, path, "{}", asJSON, janeSays)
		code := http.StatusForbidden
		if want == "" {
			code = http.StatusMethodNotAllowed // nothing to authorize
		}
		if got := strings.Join(asked, "; "); got != want || resp.StatusCode != code {
			t.Errorf("%s: %d, asked for %q, want %q", request, resp.StatusCode, got, want)
		}
	}
}

// Status code, reason and message of a refusal match upstream's.
func TestForbidden(t *testing.T) {
	t.Parallel()
	a := serveFor(t, decide(func(auth.Attributes) (bool, string, error) { return false, "because", nil }))
	for request, want := range map[string]string{
		"GET /api/v1/namespaces/y/pods": `pods is forbidden: User "jane" cannot list resource "pods" in API group ` +
			`"" in the namespace "y": because`,
		"GET /api/v1/nodes/n": `nodes "n" is forbidden: User "jane" cannot get resource "nodes" in API ` +
			`group "" at the cluster scope: because`,
		"GET /api/v1/namespaces/y/pods/a/log": `pods "a" is forbidden: User "jane" cannot get resource "pods/log" in API ` +
			`group "" in the namespace "y": because`,
		"POST /apis/apps/v1/namespaces/y/replicasets": `replicasets.apps is forbidden: User "jane" cannot create resource ` +
			`"replicasets" in API group "apps" in the namespace "y": because`,
		"GET /metrics":      `forbidden: User "jane" cannot get path "/metrics": because`,
		"GET /%3Cscript%3E": `forbidden: User "jane" cannot get path "/&lt;script&gt;": because`,
	} {
		method, path, _ := strings.Cut(request, " ")
		code, status := a.read(method, path, "{}", asJSON, janeSays)
		if code != 403 || status["reason"] != "Forbidden" || status["message"] != want {
			t.Errorf("%s: %d %v\nwant %s", request, code, status["message"], want)
		}
	}
	if code, _ := a.read("GET", "/api/v1/nodes", ""); code != 200 {
		t.Errorf("the admin: %d", code)
	}
}

// Anonymous users can read health and the version, and nothing else.
func TestAnonymous(t *testing.T) {
	t.Parallel()
	a := serveFor(t, decide(func(auth.Attributes) (bool, string, error) { return true, "", nil }))
	for path, want := range map[string]struct {
		code int
		says string
	}{
		"/livez": {200, "ok"}, "/version": {200, "gitVersion"},
		"/readyz": {500, "[-]broken failed: reason withheld"},
		"/api":    {401, "Unauthorized"}, "/api/v1/pods": {401, "Unauthorized"}, "/metrics": {401, "Unauthorized"},
		"/no/such/path": {401, "Unauthorized"}, "/apis/x/y/z/1/2/3/4": {401, "Unauthorized"},
		"/version/": {401, "Unauthorized"},
	} {
		resp := a.do("GET", path, "", "Authorization: none")
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != want.code || !strings.Contains(string(data), want.says) {
			t.Errorf("%s: %d %s, %v", path, resp.StatusCode, data, err)
		}
	}
	resp := a.do("GET", "/readyz", "")
	if data, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(data), "[-]broken failed: on purpose") {
		t.Errorf("the admin sees %s, %v", data, err)
	}
}

func TestImpersonate(t *testing.T) {
	t.Parallel()
	var asked []string
	a := serveFor(t, decide(func(a auth.Attributes) (bool, string, error) {
		asked = append(asked, a.User.Name+" "+describe(a)+" of "+strings.Join(a.User.Groups, ","))
		return a.Verb != "impersonate" || a.Name != "root", "", nil
	}))
	about := func(header ...string) (int, map[string]any) {
		asked = nil
		return a.read("GET", "/api/v1/nodes", "", append([]string{janeSays}, header...)...)
	}
	if code, _ := about("Impersonate-User: joe", "Impersonate-Group: ops", "Impersonate-Uid: 7",
		"Impersonate-Extra-Acme.com%2fscope: read"); code != 200 {
		t.Errorf("code %d", code)
	}
	want := strings.Join([]string{
		"jane impersonate /v1 users/ ns= name=joe of dev,system:authenticated",
		"jane impersonate /v1 groups/ ns= name=ops of dev,system:authenticated",
		"jane impersonate authentication.k8s.io/v1 userextras/acme.com/scope ns= name=read of dev,system:authenticated",
		"jane impersonate authentication.k8s.io/v1 uids/ ns= name=7 of dev,system:authenticated",
		"joe list /v1 nodes/ ns= name= of ops,system:authenticated",
	}, "\n")
	if got := strings.Join(asked, "\n"); got != want {
		t.Errorf("asked\n%s\nwant\n%s", got, want)
	}
	about("Impersonate-User: system:serviceaccount:y:default")
	want = "jane impersonate /v1 serviceaccounts/ ns=y name=default of dev,system:authenticated\n" +
		"system:serviceaccount:y:default list /v1 nodes/ ns= name= of " +
		"system:serviceaccounts,system:serviceaccounts:y,system:authenticated"
	if got := strings.Join(asked, "\n"); got != want {
		t.Errorf("asked\n%s\nwant\n%s", got, want)
	}
	code, status := about("Impersonate-User: root")
	if code != 403 || status["message"] != `users "root" is forbidden: User "jane" cannot impersonate resource "users" `+
		`in API group "" at the cluster scope` {
		t.Errorf("%d %v", code, status)
	}
	if code, _ := about("Impersonate-Group: ops"); code != 400 {
		t.Errorf("a group without a user: %d", code)
	}
}

// A user who may get pods may not run commands in them.
func TestStreamsAreCreated(t *testing.T) {
	t.Parallel()
	a := serveFor(t, decide(func(a auth.Attributes) (bool, string, error) { return a.Verb == "get", "", nil }))
	for sub, want := range map[string]string{
		"exec": `pods "a" is forbidden: User "jane" cannot create resource "pods/exec" in API group "" in the namespace ` +
			`"default"`,
		"attach": "cannot create", "portforward": "cannot create", "log": "not found",
	} {
		_, status := a.read("GET", pods+"/a/"+sub, "", janeSays)
		if message, _ := status["message"].(string); !strings.Contains(message, want) {
			t.Errorf("%s: %v", sub, status)
		}
	}
}
