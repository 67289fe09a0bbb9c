package apiserver_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver"
	"monopod/apiserver/audit"
	"monopod/apiserver/registry"
	"monopod/store"
)

// lockedBuffer is a buffer for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// auditedAPI is a server with an audit policy.
func auditedAPI(t *testing.T, policy string) (API, *lockedBuffer) {
	t.Helper()
	p, err := audit.ParsePolicy([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n" + policy))
	if err != nil {
		t.Fatal(err)
	}
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := &lockedBuffer{}
	srv, err := apiserver.New(t.Context(), apiserver.Config{
		Registry: reg, Authenticator: byToken(), Audit: audit.New(out, p, clock.RealClock{}, zap.NewNop())})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(srv.Handler())
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		s.Close()
	})
	return API{t, h.URL, h.Client(), reg}, out
}

func auditLines(t *testing.T, log *lockedBuffer) (out []map[string]any) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var ev map[string]any
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, ev)
	}
	return out
}

// TestCredentialWithNotes: the client receives the authenticator's warning about a credential, and the audit log its
// notes.
func TestCredentialWithNotes(t *testing.T) {
	t.Parallel()
	a, log := auditedAPI(t, "omitStages: [RequestReceived]\nrules: [{level: Metadata}]")
	resp := a.do("GET", confs, "", "Authorization: Bearer old")
	if got := resp.Header.Get("Warning"); got != `299 - "the credential is old"` {
		t.Errorf("warning %q", got)
	}
	readBody(t, resp)
	if got := auditLines(t, log)[0]["annotations"].(map[string]any); got["age"] != "old" {
		t.Errorf("annotations %v", got)
	}
	if resp := a.do("GET", confs, "", "Authorization: Bearer jane"); resp.Header.Get("Warning") != "" {
		t.Errorf("warning %q", resp.Header.Get("Warning"))
	}
}

func TestRequestsAreAudited(t *testing.T) {
	t.Parallel()
	a, log := auditedAPI(t, `
omitStages: [RequestReceived]
rules:
- {level: None, nonResourceURLs: [/version]}
- {level: Metadata, resources: [{group: '', resources: [secrets]}]}
- {level: RequestResponse}`)
	resp := a.do("POST", confs, `{"metadata":{"name":"a"}}`, asJSON, "Authorization: Bearer jane", "Audit-Id: mine",
		"User-Agent: test")
	if resp.Header.Get("Audit-Id") != "mine" {
		t.Errorf("header %v", resp.Header)
	}
	readBody(t, resp)
	a.do("POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"},"stringData":{"k":"hidden"}}`, asJSON)
	a.do("GET", confs+"/none", "")
	a.do("GET", "/version", "")
	readBody(t, a.do("GET", confs+"?watch=1&timeoutSeconds=1", ""))
	readBody(t, a.do("GET", "/api", "", "Authorization: Bearer admin", "Impersonate-User: jane"))

	got := auditLines(t, log)
	if len(got) != 6 || strings.Contains(log.String(), "hidden") {
		t.Fatalf("%d lines: %s", len(got), log)
	}
	first, missing, started, api := got[0], got[2], got[3], got[5]
	ref := first["objectRef"].(map[string]any)
	if first["verb"] != "create" || first["stage"] != "ResponseComplete" || first["auditID"] != "mine" ||
		first["userAgent"] != "test" ||
		first["user"].(map[string]any)["username"] != "jane" || ref["resource"] != "configmaps" ||
		ref["namespace"] != "default" ||
		first["sourceIPs"].([]any)[0] != "127.0.0.1" || first["responseStatus"].(map[string]any)["code"] != 201.0 {
		t.Errorf("create: %v", first)
	}
	if first["requestObject"] == nil ||
		first["responseObject"].(map[string]any)["metadata"].(map[string]any)["uid"] == nil {
		t.Errorf("bodies of %v", first)
	}
	if s := missing["responseStatus"].(map[string]any); s["code"] != 404.0 || s["reason"] != "NotFound" {
		t.Errorf("missing: %v", missing)
	}
	if started["stage"] != "ResponseStarted" || got[4]["stage"] != "ResponseComplete" || started["verb"] != "watch" {
		t.Errorf("watch: %v, %v", started, got[4])
	}
	if api["user"].(map[string]any)["username"] != "kubernetes-admin" ||
		api["impersonatedUser"].(map[string]any)["username"] != "jane" || api["requestURI"] != "/api" ||
		api["objectRef"] != nil {
		t.Errorf("impersonated: %v", api)
	}
}
