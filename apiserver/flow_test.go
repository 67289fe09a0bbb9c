package apiserver_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zaptest"
	"k8s.io/utils/clock"

	"monopod/apiserver"
	"monopod/apiserver/flow"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/store"
)

const flowKinds = "/apis/flowcontrol.apiserver.k8s.io/v1/"

// controlled is a server whose users have the names of their tokens, with the objects of priority and fairness.
func controlled(t *testing.T) API {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources), History: 200}, nil, nil, 0)
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := flow.Ensure(t.Context(), reg); err != nil {
		t.Fatal(err)
	}
	srv, err := apiserver.New(t.Context(), apiserver.Config{Registry: reg, Authenticator: byToken()})
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := follow.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	h, done := httptest.NewServer(srv.Handler()), make(chan error, 1)
	go func() {
		done <- srv.FlowControl(
			follow.Deps{Client: reg, Clock: clock.RealClock{}, Log: zaptest.NewLogger(t), Metrics: metrics}).Run(t.Context())
	}()
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		<-done
		s.Close()
	})
	return API{t, h.URL, h.Client(), reg}
}

// A schema and a level that a user creates take effect at once: their UIDs are in the headers, and a level without
// seats refuses requests.
func TestFlowSchemasAct(t *testing.T) {
	t.Parallel()
	a := controlled(t)
	admin, u := []string{"Authorization: Bearer admin", "Content-Type: application/json"}, "Authorization: Bearer u"
	uid := func(path string) string {
		var obj struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal([]byte(readBody(t, a.do("GET", flowKinds+path, "", admin...))), &obj); err != nil {
			t.Fatal(err)
		}
		return obj.Metadata.UID
	}
	await := func(what string, is func(*http.Response) bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			resp := a.do("GET", confs, "", u)
			body := readBody(t, resp)
			if is(resp) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %s %v %s", what, resp.Status, resp.Header, body)
			}
		}
	}
	await("the default schema", func(resp *http.Response) bool {
		return resp.Header.Get("X-Kubernetes-PF-FlowSchema-UID") == uid("flowschemas/global-default") &&
			resp.Header.Get("X-Kubernetes-PF-PriorityLevel-UID") == uid("prioritylevelconfigurations/global-default")
	})
	for kind, body := range map[string]string{
		"prioritylevelconfigurations": `{"metadata":{"name":"none"},"spec":{"type":"Limited",` +
			`"limited":{"nominalConcurrencyShares":0,"borrowingLimitPercent":0,"limitResponse":{"type":"Reject"}}}}`,
		"flowschemas": `{"metadata":{"name":"u"},"spec":{"matchingPrecedence":2,"priorityLevelConfiguration":{"name":"none"},"rules":[{"subjects":[{"kind":"User","user":{"name":"u"}}],
			"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["configmaps"],"namespaces":["*"]}]}]}}`,
	} {
		if resp := a.do("POST", flowKinds+kind, body, admin...); resp.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s %s", kind, resp.Status, readBody(t, resp))
		}
	}
	await("a level without seats", func(resp *http.Response) bool {
		return resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "1" &&
			resp.Header.Get("X-Kubernetes-PF-FlowSchema-UID") == uid("flowschemas/u")
	})
	for path, want := range map[string]int{confs + "?watch=1": 429, strings.Replace(confs, "configmaps", "secrets",
		1): 200, "/api": 200, "/healthz": 200} {
		resp := a.do("GET", path, "", u)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	if text := readBody(t, a.do("GET", "/debug/api_priority_and_fairness/dump_priority_levels", "",
		admin...)); !strings.Contains(text, "none, ") {
		t.Error(text)
	}
	if text := readBody(t, a.do("GET", "/metrics", "", admin...)); !strings.Contains(text,
		`apiserver_flowcontrol_rejected_requests_total{flow_schema="u",priority_level="none",reason="concurrency-limit"}`) {
		t.Error("no metric of refused requests")
	}
	if resp := a.do("DELETE", flowKinds+"flowschemas/u", "", admin...); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	await("without the schema", func(resp *http.Response) bool { return resp.StatusCode == http.StatusOK })
}

// kubectl prints FlowSchemas in the order in which the server matches them.
func TestFlowSchemasArePrintedByPrecedence(t *testing.T) {
	t.Parallel()
	a := controlled(t)
	code, out := a.read("GET", flowKinds+"flowschemas", "", "Authorization: Bearer admin",
		"Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	rows, _ := out["rows"].([]any)
	if code != http.StatusOK || len(rows) < 5 {
		t.Fatalf("%d %v", code, out)
	}
	last := 0.0
	for _, row := range rows {
		cells := row.(map[string]any)["cells"].([]any)
		if precedence := cells[2].(float64); precedence < last {
			t.Errorf("%v comes after the precedence %v", cells, last)
		} else {
			last = precedence
		}
	}
}
