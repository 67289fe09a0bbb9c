package apiserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver"
	satoken "monopod/apiserver/access/token"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/client/clienttest"
	"monopod/apiserver/kit/health"
	"monopod/apiserver/registry"
	"monopod/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "secret"

// API is a server over a store in memory.
type API struct {
	t   *testing.T
	url string
	hc  *http.Client
	reg *registry.Registry
}

func serve(t *testing.T) API {
	t.Helper()
	return serveWith(t, func(*apiserver.Config) {})
}

// serveWith is like serve, with a changed configuration.
func serveWith(t *testing.T, change func(*apiserver.Config)) API {
	t.Helper()
	a, _ := serveBoth(t, change)
	return a
}

// serveBoth is like serveWith, and also returns the handler, for tests that call it without a network connection.
func serveBoth(t *testing.T, change func(*apiserver.Config)) (API, http.Handler) {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources), History: 200}, nil, nil, 0)
	tokens := satoken.New(satoken.Config{KeyFile: filepath.Join(t.TempDir(), "sa.key")})
	reg := registry.New(s, resources, registry.Config{Tokens: tokens.Issue})
	if err := reg.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg := apiserver.Config{
		Registry: reg, Authenticator: auth.Token(token, auth.Admin),
		Checks: []health.Check{
			{Name: "ping", Ready: true, Live: true, Ask: func(context.Context) error { return nil }},
			{Name: "broken", Degrades: true, Ask: func(context.Context) error { return fmt.Errorf("on purpose") }},
		},
	}
	change(&cfg)
	srv, err := apiserver.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(srv.Handler())
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		if err := s.Verify(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return API{t, h.URL, h.Client(), reg}, srv.Handler()
}

// do sends a request; header lines are "Name: value".
func (a API) do(method, path, body string, header ...string) *http.Response {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := a.hc.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// read sends a request and decodes the response.
func (a API) read(method, path, body string, header ...string) (int, map[string]any) {
	a.t.Helper()
	resp := a.do(method, path, body, header...)
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		a.t.Fatalf("%s %s: %v: %s", method, path, err, data)
	}
	return resp.StatusCode, out
}

func TestClient(t *testing.T) {
	clienttest.Run(t, func(t *testing.T) client.Client {
		a := serve(t)
		return &client.Remote{URL: a.url, HTTP: &http.Client{Transport: bearer{a.hc.Transport}}, New: newObject(a.reg)}
	})
}

type bearer struct{ http.RoundTripper }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return b.RoundTripper.RoundTrip(r)
}

func newObject(reg *registry.Registry) func(schema.GroupVersionResource, string) client.Object {
	return func(gvr schema.GroupVersionResource, sub string) client.Object {
		if sub == "scale" {
			return &autoscalingv1.Scale{}
		}
		res, err := reg.Resource(gvr)
		if err != nil {
			return nil
		}
		return res.New()
	}
}

const (
	pods = "/api/v1/namespaces/default/pods"
	sets = "/apis/apps/v1/namespaces/default/replicasets"
	podA = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	rs   = `{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"web"},"spec":{"replicas":%d,` +
		`"selector":{"matchLabels":{"app":"%s"}},"template":{"metadata":{"labels":{"app":"web"}},` +
		`"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	asJSON = "Content-Type: application/json"
)

// Invalid requests get upstream's error and change nothing.
func TestGarbage(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", pods, podA)
	before := a.reg.Revision()
	for name, c := range map[string]struct {
		method, path, body string
		header             []string
		code               int
		reason             string
		says               string
	}{
		"bad JSON": {"POST", pods, `{"kind":`, nil, 400, "BadRequest", "JSON"},
		"wrong kind": {"POST", pods, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`, nil, 400,
			"BadRequest", "ConfigMap"},
		"wrong type": {"POST", pods, strings.Replace(podA, `"a"`, `7`, 1), nil, 400, "BadRequest", "name"},
		"unknown namespace": {"POST", "/api/v1/namespaces/none/pods", podA, nil, 404, "NotFound",
			`namespaces "none" not found`},
		"namespace mismatch": {"POST", pods, strings.Replace(podA, `"name":"a"`, `"name":"x","namespace":"kube-system"`,
			1), nil, 400, "BadRequest", "does not match the namespace"},
		"name not DNS-1123": {"POST", pods, strings.Replace(podA, `"a"`, `"No_Good"`, 1), nil, 422, "Invalid",
			"metadata.name"},
		"no containers": {"POST", pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{}}`, nil,
			422, "Invalid", "spec.containers: Required value"},
		"negative replicas": {"POST", sets, fmt.Sprintf(rs, -1, "web"), nil, 422, "Invalid",
			"spec.replicas: Invalid value: -1"},
		"selector mismatch": {"POST", sets, fmt.Sprintf(rs, 1, "other"), nil, 422, "Invalid",
			"spec.template.metadata.labels"},
		"body too large": {"POST", pods, strings.Repeat("x", 4<<20), nil, 413, "RequestEntityTooLarge", "limit"},
		"wrong token":    {"GET", pods, "", []string{"Authorization: Bearer wrong"}, 401, "Unauthorized", "Unauthorized"},
		"unknown path":   {"GET", "/api/v1/unicorns", "", nil, 404, "NotFound", "could not find"},
		"unknown group":  {"GET", "/apis/zoo/v1/unicorns", "", nil, 404, "NotFound", "could not find"},
		"unknown name":   {"GET", pods + "/none", "", nil, 404, "NotFound", `pods "none" not found`},
		"wrong method":   {"PUT", pods, podA, nil, 405, "MethodNotAllowed", ""},
		"exists":         {"POST", pods, podA, nil, 409, "AlreadyExists", `"a" already exists`},
		"unknown media type": {"POST", pods, podA, []string{"Content-Type: text/html"}, 415, "UnsupportedMediaType",
			"text/html"},
		"unknown patch type": {"PATCH", pods + "/a", "{}", []string{"Content-Type: application/x"}, 415,
			"UnsupportedMediaType", "strategic"},
		"not acceptable": {"GET", pods, "", []string{"Accept: image/png"}, 406, "NotAcceptable", "accepted"},
		"strict": {"POST", pods + "?fieldValidation=Strict", strings.Replace(podA, `"image"`,
			`"imagine":"x","image"`, 1), nil, 400, "BadRequest", `unknown field "spec.containers[0].imagine"`},
		"patch not JSON": {"PATCH", pods + "/a", `[`, []string{"Content-Type: application/merge-patch+json"}, 400,
			"BadRequest", "patch"},
		"patch null": {"PATCH", pods + "/a", `null`,
			[]string{"Content-Type: application/strategic-merge-patch+json"}, 400, "BadRequest", ""},
		"patch test fails": {"PATCH", pods + "/a", `[{"op":"test","path":"/metadata/name","value":"b"}]`,
			[]string{"Content-Type: application/json-patch+json"}, 422, "Invalid", "test"},
		"patch name": {"PATCH", pods + "/a", `{"metadata":{"name":"b"}}`,
			[]string{"Content-Type: application/merge-patch+json"}, 400, "BadRequest", "does not match"},
		"immutable spec": {"PATCH", pods + "/a", `{"spec":{"nodeName":"x"}}`,
			[]string{"Content-Type: application/merge-patch+json"}, 422, "Invalid", "spec: Forbidden"},
		"stale": {"PATCH", pods + "/a", `{"metadata":{"resourceVersion":"1"}}`,
			[]string{"Content-Type: application/merge-patch+json"}, 409, "Conflict", "modified"},
		"label selector": {"GET", pods + "?labelSelector=a%3D%3D%3D", "", nil, 400, "BadRequest", ""},
		"field selector": {"GET", pods + "?fieldSelector=spec.color%3Dred", "", nil, 400, "BadRequest", "spec.color"},
		"watch in the future": {"GET", pods + "?watch=1&resourceVersion=99999999", "", nil, 504, "Timeout",
			"Too large resource version"},
		"invalid revision": {"GET", pods + "?watch=1&resourceVersion=x", "", nil, 400, "BadRequest", "resourceVersion"},
		"dry run":          {"POST", pods + "?dryRun=Some", podA, nil, 422, "Invalid", "dryRun"},
		"invalid grace period": {"DELETE", pods + "/a?gracePeriodSeconds=x", "", nil, 400, "BadRequest",
			"gracePeriodSeconds"},
		"exec without a node": {"POST", pods + "/a/exec?command=x", "", nil, 400, "BadRequest", "does not have a host"},
		"not acceptable write": {"POST", pods, strings.Replace(podA, `"a"`, `"b"`, 1), []string{"Accept: image/png"}, 406,
			"NotAcceptable", "accepted"},
		"not acceptable delete":  {"DELETE", pods + "/a", "", []string{"Accept: image/png"}, 406, "NotAcceptable", "accepted"},
		"query does not parse":   {"DELETE", pods + "?labelSelector=%zz", "", nil, 400, "BadRequest", "query"},
		"query cut at semicolon": {"DELETE", pods + "?labelSelector=a;b", "", nil, 400, "BadRequest", "query"},
		"two documents": {"POST", pods, "metadata: {name: x}\n---\nmetadata: {name: y}\n",
			[]string{"Content-Type: application/yaml"}, 400, "BadRequest", "several documents"},
		"delete namespace default": {"DELETE", "/api/v1/namespaces/default", "", nil, 403, "Forbidden", "may not be deleted"},
		"delete all namespaces":    {"DELETE", "/api/v1/namespaces", "", nil, 405, "MethodNotAllowed", ""},
		"binding to nothing": {"POST", pods + "/a/binding", `{"target":{"kind":"Node"}}`, nil, 422, "Invalid",
			"target.name: Required value"},
		"truncated protobuf": {"POST", pods, "k8s\x00\x0a\xff",
			[]string{"Content-Type: application/vnd.kubernetes.protobuf"}, 400, "BadRequest", "protobuf"},
		"delete of another kind": {"DELETE", pods + "/a", podA, nil, 400, "BadRequest", "DeleteOptions"},
		"a name with a slash":    {"GET", pods + "/..%2f..%2fa", "", nil, 404, "NotFound", `pods "../../a" not found`},
		"invented method":        {"BREW", pods, "", nil, 405, "MethodNotAllowed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := a
			a.t = t
			code, status := a.read(c.method, c.path, c.body, append([]string{asJSON}, c.header...)...)
			message, _ := status["message"].(string)
			if code != c.code || status["kind"] != "Status" || status["status"] != "Failure" || status["reason"] != c.reason ||
				status["code"] != float64(c.code) || !strings.Contains(message, c.says) {
				t.Errorf("got %d %v, want %d %s with %q", code, status, c.code, c.reason, c.says)
			}
		})
	}
	if now := a.reg.Revision(); now != before {
		t.Errorf("an invalid object was stored: revision %d, was %d", now, before)
	}
}

func TestInvalidNamesItsFields(t *testing.T) {
	t.Parallel()
	_, status := serve(t).read("POST", pods,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"c"}]}}`)
	causes := status["details"].(map[string]any)["causes"].([]any)
	if len(causes) != 1 || causes[0].(map[string]any)["field"] != "spec.containers[0].image" {
		t.Errorf("causes %v", causes)
	}
}

func TestPatches(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", pods, podA)
	for typ, body := range map[string]string{
		"merge-patch+json": `{"metadata":{"labels":{"merge":"1"}}}`,
		"strategic-merge-patch+json": `{"metadata":{"labels":{"strategic":"1"}},"spec":{"containers":[{"name":"c",` +
			`"image":"new"}]}}`,
		"json-patch+json": `[{"op":"add","path":"/metadata/annotations","value":{"json":"1"}}]`,
	} {
		if code, out := a.read("PATCH", pods+"/a", body, "Content-Type: application/"+typ); code != 200 {
			t.Errorf("%s: %d %v", typ, code, out)
		}
	}
	_, pod := a.read("GET", pods+"/a", "")
	meta := pod["metadata"].(map[string]any)
	if fmt.Sprint(meta["labels"], meta["annotations"]) != "map[merge:1 strategic:1] map[json:1]" {
		t.Errorf("metadata %v", meta)
	}
	container := pod["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	if container["image"] != "new" || container["terminationMessagePath"] == nil {
		t.Errorf("container %v", container)
	}
}

func TestUnknownFieldsWarn(t *testing.T) {
	t.Parallel()
	resp := serve(t).do("POST", pods, strings.Replace(podA, `"image"`, `"imagine":"x","image"`, 1), asJSON)
	if w := resp.Header.Get("Warning"); resp.StatusCode != http.StatusCreated || !strings.Contains(w,
		`unknown field \"spec.containers[0].imagine\"`) {
		t.Errorf("%d, Warning %q", resp.StatusCode, w)
	}
}

func TestYAMLBodyAndAnswer(t *testing.T) {
	t.Parallel()
	a := serve(t)
	resp := a.do("POST", "/api/v1/namespaces/default/configmaps",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {k: v}\n",
		"Content-Type: application/yaml", "Accept: application/yaml")
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusCreated || !strings.Contains(string(data), "data:\n  k: v\n") {
		t.Errorf("%d %s %v", resp.StatusCode, data, err)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", pods, podA)
	_, table := a.read("GET", pods, "", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	if table["kind"] != "Table" {
		t.Fatalf("got %v", table)
	}
	row := table["rows"].([]any)[0].(map[string]any)
	if got := fmt.Sprint(row["cells"].([]any)[:3]); got != "[a 0/1 Pending]" {
		t.Errorf("cells %s", got)
	}
	if row["object"].(map[string]any)["kind"] != "PartialObjectMetadata" {
		t.Errorf("object %v", row["object"])
	}
}

// lines reads n events of a watch, as "TYPE name grace".
func lines(t *testing.T, resp *http.Response, n int) (out []string) {
	t.Helper()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("watch: %s", resp.Status)
	}
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 1<<20)
	for len(out) < n && in.Scan() {
		var ev struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		if err := json.Unmarshal(in.Bytes(), &ev); err != nil {
			t.Fatal(err)
		}
		line := ev.Type + " " + ev.Object.Name
		if g := ev.Object.DeletionGracePeriodSeconds; g != nil {
			line += fmt.Sprintf(" grace %d", *g)
		}
		if ev.Object.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			line += "initial-events-end"
		}
		out = append(out, line)
	}
	return out
}

func TestWatchShowsBothPhasesOfADelete(t *testing.T) {
	t.Parallel()
	a := serve(t)
	w := a.do("GET", pods+"?watch=1", "")
	a.read("POST", pods, strings.Replace(podA, `"spec":{`, `"spec":{"nodeName":"n",`, 1))
	a.read("DELETE", pods+"/a?gracePeriodSeconds=10", "")
	a.read("DELETE", pods+"/a?gracePeriodSeconds=0", "")
	want := "[ADDED a MODIFIED a grace 10 DELETED a grace 10]"
	if got := fmt.Sprint(lines(t, w, 3)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWatchListEndsItsInitialEvents(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", pods, podA)
	w := a.do("GET", pods+"?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", "")
	a.read("POST", pods, strings.Replace(podA, `"a"`, `"b"`, 1))
	want := "[ADDED a BOOKMARK initial-events-end ADDED b]"
	if got := fmt.Sprint(lines(t, w, 3)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWatchTooOldIsGone(t *testing.T) {
	t.Parallel()
	a := serve(t)
	_, first := a.read("POST", pods, podA)
	for i := range 400 {
		a.read("PATCH", pods+"/a", fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, i),
			"Content-Type: application/merge-patch+json")
	}
	rv := first["metadata"].(map[string]any)["resourceVersion"].(string)
	resp := a.do("GET", pods+"?watch=1&resourceVersion="+rv, "")
	if events := readBody(t, resp); resp.StatusCode != http.StatusOK || !strings.HasPrefix(events,
		`{"type":"ERROR","object":{"kind":"Status"`) || !strings.Contains(events, `"code":410`) {
		t.Errorf("%d %s", resp.StatusCode, events)
	}
}

func TestDeleteCollection(t *testing.T) {
	t.Parallel()
	a := serve(t)
	const maps = "/api/v1/namespaces/default/configmaps"
	const n, together = 49, 16
	for i := range n {
		kept := ""
		if i%together == 0 {
			kept = `,"finalizers":["example.com/kept"]`
		}
		a.read("POST", maps, fmt.Sprintf(`{"metadata":{"name":"m%d","labels":{"x":"y"}%s}}`, i, kept))
	}
	a.read("POST", maps, `{"metadata":{"name":"other"}}`)
	if code, out := a.read("DELETE", maps+"?labelSelector=x%3Dy", ""); code != 200 || len(out["items"].([]any)) != n {
		t.Errorf("%d %v", code, out)
	}
	_, out := a.read("GET", maps, "")
	var left []string
	for _, item := range out["items"].([]any) {
		meta := item.(map[string]any)["metadata"].(map[string]any)
		left = append(left, fmt.Sprint(meta["name"], " ", meta["deletionTimestamp"] != nil))
	}
	if want := []string{"m0 true", "m16 true", "m32 true", "m48 true", "other false"}; !slices.Equal(left, want) {
		t.Errorf("left: %q, want %q", left, want)
	}
}

func TestStatusOfNamespaces(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for path, kind := range map[string]string{
		"/api/v1/namespaces/default/status": "Namespace", "/api/v1/namespaces/default": "Namespace",
		"/api/v1/namespaces/default/configmaps": "ConfigMapList",
	} {
		if code, out := a.read("GET", path, ""); code != 200 || out["kind"] != kind {
			t.Errorf("%s: %d %v", path, code, out)
		}
	}
	if code, out := a.read("PATCH", "/api/v1/namespaces/default/status",
		`{"status":{"conditions":[{"type":"X","status":"True"}]}}`,
		"Content-Type: application/merge-patch+json"); code != 200 {
		t.Errorf("%d %v", code, out)
	}
	if code, out := a.read("GET", "/api/v1/namespaces/default/finalize", ""); code != 405 {
		t.Errorf("%d %v", code, out)
	}
}

func TestBinding(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", pods, podA)
	body := `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"a"},"target":{"kind":"Node","name":"n1"}}`
	if code, out := a.read("POST", pods+"/a/binding", body); code != 201 || out["status"] != "Success" {
		t.Errorf("%d %v", code, out)
	}
	if code, _ := a.read("POST", pods+"/a/binding", body); code != 409 {
		t.Errorf("second binding: %d", code)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for path, want := range map[string]struct {
		code int
		says string
	}{
		"/readyz":                        {200, "ok"},
		"/livez?verbose":                 {200, "[+]ping ok"},
		"/healthz":                       {500, "[-]broken failed: reason withheld"},
		"/healthz?exclude=broken":        {200, "ok"},
		"/healthz/ping":                  {200, "ok"},
		"/healthz/none":                  {404, "no such check"},
		"/readyz?verbose&exclude=broken": {200, "readyz check passed"},
		"/readyz?verbose":                {200, "[!]broken degraded: reason withheld\nreadyz check passed"},
		"/readyz/broken":                 {500, "[-]broken failed: reason withheld"},
		"/livez":                         {200, "ok"},
	} {
		resp := a.do("GET", path, "", "Authorization: none")
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != want.code || !strings.Contains(string(data), want.says) {
			t.Errorf("%s: %d %s, %v", path, resp.StatusCode, data, err)
		}
	}
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	a := serve(t)
	_, list := a.read("GET", "/apis/apps/v1", "")
	if got := fmt.Sprint(list); !strings.Contains(got, "replicasets/scale") {
		t.Errorf("apps/v1: %s", got)
	}
	_, all := a.read("GET", "/api", "", "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if all["kind"] != "APIGroupDiscoveryList" || !strings.Contains(fmt.Sprint(all), "PodExecOptions") {
		t.Errorf("aggregated: %v", all)
	}
	_, index := a.read("GET", "/openapi/v3", "")
	path := index["paths"].(map[string]any)["apis/apps/v1"].(map[string]any)["serverRelativeURL"].(string)
	if _, doc := a.read("GET", path, ""); doc["openapi"] == nil {
		t.Errorf("document: %v", doc)
	}
}
