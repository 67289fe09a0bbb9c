package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver"
	"monopod/apiserver/auth"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/store"
)

const asAggregated = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

// Discovery of some kinds, as "name kind verbs", matches upstream's.
func TestDiscoveryMatchesUpstream(t *testing.T) {
	t.Parallel()
	more := registry.Resource{GVR: testGVR("gadgets"), Kind: "Gadget",
		New: func() registry.Object { return &corev1.RangeAllocation{} },
		Subresources: append(kind.Parts("status", "resize", "ephemeralcontainers"), kind.Proxy("Gadget"), tokens(),
			kind.Posted("eviction", policyv1.SchemeGroupVersion.WithKind("Eviction"),
				func() registry.Object { return &policyv1.Eviction{} }))}
	a := serveOf(t, nil, more)
	got := map[string]string{}
	for _, path := range []string{"/api/v1", "/apis/apps/v1", "/apis/test.monopod/v1"} {
		_, list := a.read("GET", path, "")
		var names []string
		for _, v := range list["resources"].([]any) {
			r := v.(map[string]any)
			names = append(names, r["name"].(string))
			said := fmt.Sprint(r["group"], "/", r["version"], " ", r["kind"], " ", r["verbs"])
			got[r["name"].(string)] = strings.TrimLeft(strings.ReplaceAll(said, "<nil>", ""), "/ ")
		}
		if !slices.IsSorted(names) {
			t.Errorf("%s is not sorted: %v", path, names)
		}
	}
	for name, want := range map[string]string{
		"bindings":                    "Binding [create]",
		"configmaps":                  "ConfigMap [create delete deletecollection get list patch update watch]",
		"namespaces":                  "Namespace [create delete get list patch update watch]",
		"namespaces/finalize":         "Namespace [update]",
		"pods":                        "Pod [create delete deletecollection get list patch update watch]",
		"pods/attach":                 "PodAttachOptions [create get]",
		"pods/binding":                "Binding [create]",
		"gadgets/ephemeralcontainers": "Gadget [get patch update]",
		"gadgets/eviction":            "policy/v1 Eviction [create]",
		"pods/exec":                   "PodExecOptions [create get]",
		"pods/log":                    "Pod [get]",
		"pods/portforward":            "PodPortForwardOptions [create get]",
		"gadgets/proxy":               "v1 GadgetProxyOptions [create delete get patch update]",
		"gadgets/token":               "authentication.k8s.io/v1 TokenRequest [create]",
		"pods/status":                 "Pod [get patch update]",
		"replicasets/scale":           "autoscaling/v1 Scale [get patch update]",
	} {
		if got[name] != want {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
	}
}

func widget(group, version string) registry.Resource {
	return registry.Resource{
		GVR: schema.GroupVersionResource{Group: group, Version: version, Resource: "widgets"}, Kind: "Widget",
		New: func() registry.Object { return &corev1.Node{} },
	}
}

func TestGroupsComeInUpstreamsOrder(t *testing.T) {
	t.Parallel()
	a := serveOf(t, nil, widget("example.com", "v1beta1"), widget("example.com", "v1"), widget("example.com", "v2"))
	_, list := a.read("GET", "/apis", "")
	var names []string
	for _, g := range list["groups"].([]any) {
		names = append(names, g.(map[string]any)["name"].(string))
	}
	order := []string{"apiregistration.k8s.io", "apps", "events.k8s.io", "rbac.authorization.k8s.io", "storage.k8s.io",
		"scheduling.k8s.io", "coordination.k8s.io", "node.k8s.io", "discovery.k8s.io", "flowcontrol.apiserver.k8s.io",
		"example.com"}
	at := -1
	for _, name := range order {
		if i := slices.Index(names, name); i < at {
			t.Errorf("%s is out of order: %v", name, names)
		} else {
			at = i
		}
	}
	_, group := a.read("GET", "/apis/example.com", "")
	if got := fmt.Sprint(group["preferredVersion"],
		group["versions"]); got != "map[groupVersion:example.com/v2 version:v2] [map[groupVersion:example.com/v2 "+
		"version:v2] map[groupVersion:example.com/v1 version:v1] map[groupVersion:example.com/v1beta1 version:v1beta1]]" {
		t.Error(got)
	}
	_, all := a.read("GET", "/apis", "", asAggregated)
	for _, item := range all["items"].([]any) {
		group := item.(map[string]any)
		if group["metadata"].(map[string]any)["name"] != "example.com" {
			continue
		}
		if versions := group["versions"].([]any); len(versions) != 3 || versions[0].(map[string]any)["version"] != "v2" {
			t.Errorf("aggregated: %v", group)
		}
		return
	}
	t.Error("aggregated discovery has no example.com")
}

func TestDiscoveryIsCached(t *testing.T) {
	t.Parallel()
	a := serve(t)
	first := a.do("GET", "/apis", "", asAggregated)
	tag := first.Header.Get("ETag")
	if first.Header.Get("Content-Type") != "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList" ||
		tag == "" {
		t.Fatalf("header %v", first.Header)
	}
	if again := a.do("GET", "/apis", "", asAggregated, "If-None-Match: "+tag); again.StatusCode != http.StatusNotModified {
		t.Errorf("again: %s", again.Status)
	}
	if other := a.do("GET", "/api", "", asAggregated, "If-None-Match: "+tag); other.StatusCode != http.StatusOK {
		t.Errorf("another document: %s", other.Status)
	}
}

// The cached document changes when a definition is created or deleted.
func TestDiscoveryFollowsDefinitions(t *testing.T) {
	t.Parallel()
	a := serve(t)
	tagged := func() (tag, body string) {
		resp := a.do("GET", "/apis", "", asAggregated)
		return resp.Header.Get("ETag"), readBody(t, resp)
	}
	before, body := tagged()
	if strings.Contains(body, "example.com") {
		t.Fatal(body)
	}
	a.define(widgets)
	defined, body := tagged()
	if defined == before || !strings.Contains(body, `"name":"example.com"`) {
		t.Errorf("the document has not changed: %.200s", body)
	}
	if again, _ := tagged(); again != defined {
		t.Error("the document has changed without a reason")
	}
	if pretty := readBody(t, a.do("GET", "/apis?pretty=true", "", asAggregated)); !strings.Contains(pretty, "\n  ") {
		t.Errorf("%.200s", pretty)
	}
}

// The results of health checks are metrics, by the path that ran them.
func TestHealthChecksAreMetrics(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for _, path := range []string{"/readyz", "/readyz", "/healthz", "/livez/ping"} {
		readBody(t, a.do("GET", path, ""))
	}
	text := readBody(t, a.do("GET", "/metrics/slis", ""))
	for _, want := range []string{
		`kubernetes_healthcheck{name="ping",type="readyz"} 1`, `kubernetes_healthcheck{name="broken",type="healthz"} 0`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 2`,
		`kubernetes_healthchecks_total{name="broken",status="error",type="healthz"} 1`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

func TestDiscoveryInProtobuf(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for path, want := range map[string]string{"/api": "APIVersions", "/apis": "APIGroupList", "/apis/apps": "APIGroup",
		"/api/v1": "APIResourceList"} {
		_, obj := a.readTyped("GET", path, "", onlyProto)
		if _, isMeta := obj.(metav1.Object); isMeta || !strings.HasSuffix(fmt.Sprintf("%T", obj), "."+want) {
			t.Errorf("%s: %T", path, obj)
		}
	}
}

// A trailing slash makes no difference, as in upstream.
func TestDiscoveryWithASlash(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for _, path := range []string{"/api", "/apis", "/apis/apps", "/apis/apps/v1", "/api/v1", "/api/v1/namespaces",
		"/api/v1/namespaces/default", confs, "/apis/none"} {
		code, out := a.read("GET", path, "")
		slashed, same := a.read("GET", path+"/", "")
		if code != slashed || out["kind"] != same["kind"] {
			t.Errorf("%s: %d %v, with a slash %d %v", path, code, out["kind"], slashed, same["kind"])
		}
	}
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		resources := registry.Resources()
		s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
		t.Cleanup(func() { s.Close() })
		srv, err := apiserver.New(t.Context(), apiserver.Config{
			Registry: registry.New(s, resources, registry.Config{}), Authenticator: byToken(), Authorizer: mayNothing{},
			Profiling: on})
		if err != nil {
			t.Fatal(err)
		}
		for path, says := range map[string]string{
			"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/cmdline": "",
			"/debug/pprof/symbol": "num_symbols",
		} {
			for user, want := range map[string]int{"admin": 200, "a": 403} {
				if !on && user == "admin" {
					want = 404
				}
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Header.Set("Authorization", "Bearer "+user)
				w := httptest.NewRecorder()
				srv.Handler().ServeHTTP(w, r)
				if w.Code != want || want == 200 && !strings.Contains(w.Body.String(), says) {
					t.Errorf("on %t: %s for %s: %d %.100s", on, path, user, w.Code, w.Body)
				}
			}
		}
	}
}

type mayNothing struct{}

func (mayNothing) Authorize(context.Context, auth.Attributes) (bool, string, error) {
	return false, "", nil
}
