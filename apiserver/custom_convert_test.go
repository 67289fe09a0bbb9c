package apiserver_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
)

// converting returns a definition whose webhook is at url: v1 has spec.size, v2, which is stored, spec.count.
func converting(url, ca, reviews string) string {
	version := func(name, field, more string, storage bool) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%v,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.%s","statusReplicasPath":".status.%s"}},
			"selectableFields":[{"jsonPath":".spec.color"},{"jsonPath":".spec.%s"}],"additionalPrinterColumns":[{"name":"N","type":"integer","jsonPath":".spec.%s"}],
			"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","required":[%q],
			"properties":{"%s":{"type":"integer","maximum":9},"color":{"type":"string"}%s}},"status":{"type":"object","properties":{%q:{"type":"integer"}}}}}}}`,
			name, storage, field, field, field, field, field, field, more, field)
	}
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"turns.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"kind":"Turn","plural":"turns","singular":"turn","listKind":"TurnList"},
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":[%s],"clientConfig":{"url":%q,"caBundle":%q}}},
		"versions":[%s,%s]}}`, reviews, url, ca, version("v1", "size", "", false), version("v2", "count", `,"late":{"type":"string","default":"set"}`, true))
}

// reply returns a conversion webhook's response to a ConversionReview.
type reply func(asked *apiextensionsv1.ConversionReview) any

// turn converts as the webhook of converting should.
func turn(asked *apiextensionsv1.ConversionReview) any {
	r := &apiextensionsv1.ConversionResponse{UID: asked.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range asked.Request.Objects {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw.Raw); err != nil {
			r.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			break
		}
		for _, part := range []string{"spec", "status"} {
			fields, _, _ := unstructured.NestedMap(u.Object, part)
			if fields == nil {
				continue
			}
			for from, to := range map[string]string{"size": "count", "count": "size"} {
				if value, ok := fields[from]; ok && u.GetAPIVersion() != asked.Request.DesiredAPIVersion {
					delete(fields, from)
					fields[to] = value
					break
				}
			}
			u.Object[part] = fields
		}
		u.SetAPIVersion(asked.Request.DesiredAPIVersion)
		labels := map[string]string{"from": "webhook"}
		maps.Copy(labels, u.GetLabels())
		u.SetLabels(labels)
		r.ConvertedObjects = append(r.ConvertedObjects, runtime.RawExtension{Object: u})
	}
	return &apiextensionsv1.ConversionReview{TypeMeta: asked.TypeMeta, Response: r}
}

// convertedBy serves the definition of converting with a webhook, and returns how often it is called.
func (a API) convertedBy(reviews string, answer func() reply) *atomic.Int64 {
	a.t.Helper()
	calls := &atomic.Int64{}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		asked := &apiextensionsv1.ConversionReview{}
		data, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(data, asked)
		}
		if err != nil || asked.Request == nil {
			a.t.Errorf("a request that is not a ConversionReview: %.300s %v", data, err)
			return
		}
		switch v := answer()(asked).(type) {
		case http.HandlerFunc:
			v(w, r)
		case string:
			fmt.Fprint(w, v)
		default:
			_ = json.NewEncoder(w).Encode(v)
		}
	}))
	a.t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	a.define(converting(s.URL+"/convert", base64.StdEncoding.EncodeToString(ca), reviews))
	return calls
}

func turnOf(version, name, field string, n int) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/%s","kind":"Turn","metadata":{"name":%q},"spec":{%q:%d,"color":"red"}}`,
		version, name, field, n)
}

const turnsAt = "/apis/example.com/%s/namespaces/default/turns"

// Every verb of a version whose objects are stored in another one converts them by the webhook.
func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	a := serve(t)
	calls := a.convertedBy(`"v2","v1"`, func() reply { return turn })
	v1, v2 := fmt.Sprintf(turnsAt, "v1"), fmt.Sprintf(turnsAt, "v2")
	for _, c := range []struct {
		name, method, path, typ, body string
		code                          int
		says, not                     string
	}{
		{"create", "POST", v1, "", turnOf("v1", "a", "size", 3), 201, `"spec":{"color":"red","size":3}`, "late"},
		{"validation is that of the client's version", "POST", v1, "", turnOf("v1", "b", "size", 10), 422,
			`spec.size: Invalid value: 10`, ""},
		{"read as stored", "GET", v2 + "/a", "", "", 200, `"from":"webhook"`, "size"},
		{"read", "GET", v1 + "/a", "", "", 200, `"apiVersion":"example.com/v1"`, "count"},
		{"create as stored", "POST", v2, "", turnOf("v2", "b", "count", 4), 201,
			`"spec":{"color":"red","count":4,"late":"set"}`, "size"},
		{"list", "GET", v1, "", "", 200, `"size":4`, "count"},
		{"a page", "GET", v1 + "?limit=1", "", "", 200, `"size":3`, "count"},
		{"a selectable field", "GET", v1 + "?fieldSelector=spec.color%3Dblue", "", "", 200, `"items":[]`, ""},
		{"update", "PUT", v1 + "/b", "", turnOf("v1", "b", "size", 5), 200, `"generation":2`, "count"},
		{"patch", "PATCH", v1 + "/b", "application/merge-patch+json", `{"spec":{"size":6}}`, 200, `"size":6`, "count"},
		{"a patch that changes nothing", "PATCH", v1 + "/b", "application/merge-patch+json", `{"spec":{"size":6}}`, 200,
			`"generation":3`, ""},
		{"JSON patch", "PATCH", v1 + "/b", "application/json-patch+json",
			`[{"op":"test","path":"/spec/size","value":6},{"op":"replace","path":"/spec/size","value":7}]`, 200, `"size":7`, ""},
		{"the stored one", "GET", v2 + "/b", "", "", 200, `"count":7`, "size"},
		{"apply", "PATCH", v1 + "/c?fieldManager=one", "application/apply-patch+yaml", turnOf("v1", "c", "size", 1), 201,
			`"f:size":{}`, ""},
		{"apply in another version", "PATCH", v2 + "/c?fieldManager=two", "application/apply-patch+yaml",
			turnOf("v2", "c", "count", 2), 409, `conflict with \"one\": .spec.size`, ""},
		{"apply by force", "PATCH", v2 + "/c?fieldManager=two&force=true", "application/apply-patch+yaml",
			turnOf("v2", "c", "count", 2), 200, `"count":2`, ""},
		{"status", "PATCH", v1 + "/c/status", "application/merge-patch+json", `{"status":{"size":8},"spec":{"size":1}}`, 200,
			`"spec":{"color":"red","size":2},"status":{"size":8}`, ""},
		{"scale", "GET", v1 + "/c/scale", "", "", 200, `"spec":{"replicas":2},"status":{"replicas":8}`, ""},
		{"set the scale", "PATCH", v1 + "/c/scale", "application/merge-patch+json", `{"spec":{"replicas":9}}`, 200,
			`"replicas":9`, ""},
		{"scaled", "GET", v1 + "/c", "", "", 200, `"size":9`, ""},
		{"dry run", "POST", v1 + "?dryRun=All", "", turnOf("v1", "d", "size", 1), 201, `"size":1`, ""},
		{"delete", "DELETE", v1 + "/c", "", "", 200, `"status":"Success"`, ""},
		{"delete all", "DELETE", v1, "", "", 200, `"size":3`, ""},
		{"list after the deletion", "GET", v2, "", "", 200, `"items":[]`, ""},
	} {
		resp := a.do(c.method, c.path, c.body, "Content-Type: "+c.typ)
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != c.code || !strings.Contains(string(data), c.says) ||
			c.not != "" && strings.Contains(string(data), c.not) {
			t.Errorf("%s: %d %s, %v; want %d with %s", c.name, resp.StatusCode, data, err, c.code, c.says)
		}
	}
	if calls.Load() == 0 {
		t.Error("the webhook was not called")
	}
}

// A watch converts what it sends, and a stored object is converted once for all readers.
func TestConversionOnce(t *testing.T) {
	t.Parallel()
	a := serve(t)
	calls := a.convertedBy(`"v1"`, func() reply { return turn })
	v1, v2 := fmt.Sprintf(turnsAt, "v1"), fmt.Sprintf(turnsAt, "v2")
	for i := range 3 {
		a.read("POST", v2, turnOf("v2", fmt.Sprint("x", i), "count", i))
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("writes of the stored version called the webhook %d times", n)
	}
	for range 4 {
		if code, list := a.read("GET", v1, ""); code != 200 || len(list["items"].([]any)) != 3 {
			t.Errorf("%d %v", code, list)
		}
		a.read("GET", v1+"/x1", "")
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("a list and its repetitions called the webhook %d times, want once", n)
	}
	watches := make([]*bufio.Scanner, 5)
	for i := range watches {
		watches[i] = bufio.NewScanner(a.do("GET", v1+"?watch=1&resourceVersion="+fmt.Sprint(a.reg.Revision()), "").Body)
	}
	a.read("PUT", v2+"/x1", turnOf("v2", "x1", "count", 9))
	for _, w := range watches {
		if !w.Scan() || !strings.Contains(w.Text(), `"MODIFIED"`) || !strings.Contains(w.Text(), `"size":9`) {
			t.Errorf("a watch got %s", w.Text())
		}
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("five watches of one change: %d calls, want one more", n)
	}
}

// 1,200 objects are converted in calls of bounded size.
func TestConversionInParts(t *testing.T) {
	t.Parallel()
	a := serve(t)
	var most atomic.Int64
	calls := a.convertedBy(`"v1beta1"`, func() reply {
		return func(asked *apiextensionsv1.ConversionReview) any {
			most.Store(max(most.Load(), int64(len(asked.Request.Objects))))
			return turn(asked)
		}
	})
	for i := range 1200 {
		a.read("POST", fmt.Sprintf(turnsAt, "v2"), turnOf("v2", fmt.Sprint("x", i), "count", i%9))
	}
	if _, list := a.read("GET", fmt.Sprintf(turnsAt, "v1"), ""); len(list["items"].([]any)) != 1200 {
		t.Errorf("%d objects", len(list["items"].([]any)))
	}
	if calls.Load() != 3 || most.Load() > 500 {
		t.Errorf("%d calls, of at most %d objects", calls.Load(), most.Load())
	}
}

// A webhook that misbehaves makes only the request fail.
func TestHostileConversion(t *testing.T) {
	t.Parallel()
	a := serve(t)
	var now atomic.Value
	now.Store(reply(turn))
	a.convertedBy(`"v1"`, func() reply { return now.Load().(reply) })
	v1, v2 := fmt.Sprintf(turnsAt, "v1"), fmt.Sprintf(turnsAt, "v2")
	with := func(change func(*apiextensionsv1.ConversionReview)) reply {
		return func(asked *apiextensionsv1.ConversionReview) any {
			r := turn(asked).(*apiextensionsv1.ConversionReview)
			change(r)
			return r
		}
	}
	object := func(change func(*unstructured.Unstructured)) reply {
		return with(func(r *apiextensionsv1.ConversionReview) {
			change(r.Response.ConvertedObjects[0].Object.(*unstructured.Unstructured))
		})
	}
	text := func(s string) reply { return func(*apiextensionsv1.ConversionReview) any { return s } }
	handler := func(h http.HandlerFunc) reply { return func(*apiextensionsv1.ConversionReview) any { return h } }
	for i, c := range []struct {
		name string
		do   reply
		want string
	}{
		{"not JSON", text("hello"), "failed: couldn't get version/kind; json parse error"},
		{"deep", text(strings.Repeat(`{"a":`, 100000)),
			"the response is not accepted: a.a.a.a.a.a.a.a…: Forbidden: must not be nested more than 256 levels deep"},
		{"huge", text(strings.Repeat(" ", 9<<20)), "the response is larger than 8388608 bytes"},
		{"nothing", text("{}"), "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind="},
		{"redirect", handler(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusTemporaryRedirect)
		}), "status code 307"},
		{"500", handler(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }),
			"an error on the server"},
		{"hang up", handler(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), "failed: Post "},
		{"another version of the review",
			with(func(r *apiextensionsv1.ConversionReview) { r.APIVersion = "apiextensions.k8s.io/v1beta1" }),
			"expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview"},
		{"no response", with(func(r *apiextensionsv1.ConversionReview) { r.Response = nil }), "no response provided"},
		{"wrong UID", with(func(r *apiextensionsv1.ConversionReview) { r.Response.UID = "x" }), `expected response.uid="`},
		{"no result", with(func(r *apiextensionsv1.ConversionReview) { r.Response.Result = metav1.Status{} }),
			"response.result.status was '', not 'Success'"},
		{"failure", with(func(r *apiextensionsv1.ConversionReview) {
			r.Response.Result = metav1.Status{Status: metav1.StatusFailure, Message: "not today"}
		}), "conversion webhook for example.com/v2, Kind=Turn failed: not today"},
		{"no objects", with(func(r *apiextensionsv1.ConversionReview) { r.Response.ConvertedObjects = nil }),
			"returned 0 objects, expected 1"},
		{"too many", with(func(r *apiextensionsv1.ConversionReview) {
			r.Response.ConvertedObjects = append(r.Response.ConvertedObjects, r.Response.ConvertedObjects...)
		}), "returned 2 objects, expected 1"},
		{"null", with(func(r *apiextensionsv1.ConversionReview) {
			r.Response.ConvertedObjects[0] = runtime.RawExtension{Raw: []byte("null")}
		}), "returned invalid object at index 0: "},
		{"a number", with(func(r *apiextensionsv1.ConversionReview) {
			r.Response.ConvertedObjects[0] = runtime.RawExtension{Raw: []byte("7")}
		}), "invalid object at index 0"},
		{"a list", object(func(u *unstructured.Unstructured) { u.Object["items"] = []any{} }), "it is a list"},
		{"not converted", object(func(u *unstructured.Unstructured) { u.SetAPIVersion("example.com/v2") }),
			"invalid groupVersion (expected example.com/v1, received example.com/v2)"},
		{"another kind", object(func(u *unstructured.Unstructured) { u.SetKind("Other") }),
			"invalid kind (expected Turn, received Other)"},
		{"another name", object(func(u *unstructured.Unstructured) { u.SetName("other") }),
			"must have the same name: x != other"},
		{"another namespace", object(func(u *unstructured.Unstructured) { u.SetNamespace("other") }),
			"must have the same namespace: default != other"},
		{"another object", object(func(u *unstructured.Unstructured) { u.SetUID("other") }), "must have the same UID: "},
		{"no metadata", object(func(u *unstructured.Unstructured) { delete(u.Object, "metadata") }),
			"must have the same name"},
		{"bad labels", object(func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a b": "c"}) }),
			"metadata.labels: Invalid value"},
		{"bad annotations", object(func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"": "c"}) }),
			"metadata.annotation: Invalid value"},
		{"labels of another type",
			object(func(u *unstructured.Unstructured) { u.Object["metadata"].(map[string]any)["labels"] = "x" }),
			"invalid metadata.labels of type string in converted object"},
		{"labels of numbers", object(func(u *unstructured.Unstructured) {
			u.Object["metadata"].(map[string]any)["labels"] = map[string]any{"a": 1}
		}), "metadata.labels[a] must be a string, but is int64 in converted object"},
		{"a large object", object(func(u *unstructured.Unstructured) { u.Object["spec"] = strings.Repeat("x", 4<<20) }),
			"bytes, limit is 3145728"},
		{"unknown fields", object(func(u *unstructured.Unstructured) { u.Object["more"] = "x" }), ""},
		{"changed metadata", object(func(u *unstructured.Unstructured) {
			u.SetResourceVersion("1")
			u.SetFinalizers([]string{"a.b/c"})
			u.SetGeneration(99)
		}), ""},
	} {
		now.Store(reply(turn))
		a.read("DELETE", v2+"/x", "")
		if code, made := a.read("POST", v2, turnOf("v2", "x", "count", i%9)); code != 201 {
			t.Fatalf("%s: %d %v", c.name, code, made)
		}
		now.Store(c.do)
		code, got := a.read("GET", v1+"/x", "")
		says := fmt.Sprint(got["message"])
		meta, _ := got["metadata"].(map[string]any)
		switch {
		case c.want == "" && (code != 200 || got["more"] != nil || meta["generation"] != 1.0 || meta["finalizers"] != nil):
			t.Errorf("%s: %d %v", c.name, code, got)
		case c.want != "" && (code != 500 || !strings.Contains(says, c.want)):
			t.Errorf("%s: %d %.600v, want %q", c.name, code, says, c.want)
		}
		if c.want == "" {
			continue
		}
		for _, verb := range []string{"GET " + v1, "DELETE " + v1 + "/x"} {
			method, path, _ := strings.Cut(verb, " ")
			if code, _ := a.read(method, path, ""); code != 500 {
				t.Errorf("%s: %s: %d", c.name, verb, code)
			}
		}
		if code, _ := a.read("GET", v2+"/x", ""); code != 200 {
			t.Errorf("%s: the stored version: %d", c.name, code)
		}
	}
}

// Controllers can list the metadata of objects whose conversion webhook is down, and delete them.
func TestConversionDown(t *testing.T) {
	t.Parallel()
	a := serve(t)
	var down atomic.Bool
	calls := a.convertedBy(`"v1"`, func() reply {
		if down.Load() {
			return func(*apiextensionsv1.ConversionReview) any { return "down" }
		}
		return turn
	})
	v1, v2 := fmt.Sprintf(turnsAt, "v1"), fmt.Sprintf(turnsAt, "v2")
	a.read("POST", v2, turnOf("v2", "x", "count", 1))
	down.Store(true)
	resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "turns"}
	objs, _, err := a.reg.List(t.Context(), client.Selector{Resource: resource})
	if err != nil || len(objs) != 1 || objs[0].GetName() != "x" || calls.Load() != 0 {
		t.Fatalf("%v %v, %d calls", objs, err, calls.Load())
	}
	for _, k := range registry.Served(a.reg.Resources()) {
		if k.Kind == "Turn" && k.Resource.Version != "v2" {
			t.Errorf("controllers use %v, which is not the stored version", k.Resource)
		}
	}
	scan := bufio.NewScanner(a.do("GET", v1+"?watch=1&resourceVersion="+fmt.Sprint(a.reg.Revision()), "").Body)
	a.read("PUT", v2+"/x", turnOf("v2", "x", "count", 2))
	if !scan.Scan() || !strings.Contains(scan.Text(), `"ERROR"`) ||
		!strings.Contains(scan.Text(), "conversion webhook for example.com/v2, Kind=Turn failed") || scan.Scan() {
		t.Errorf("a watch got %s", scan.Text())
	}
	if _, err := a.reg.Delete(t.Context(), client.Ref{Resource: resource, Namespace: "default", Name: "x"},
		metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// When the storage version of a definition changes, status.storedVersions keeps the old version until a client has
// rewritten all objects and removes it.
func TestStoredVersions(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.convertedBy(`"v1"`, func() reply { return turn })
	v1, v2 := fmt.Sprintf(turnsAt, "v1"), fmt.Sprintf(turnsAt, "v2")
	const at = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/turns.example.com"
	patch := func(path, body string) (int, string) {
		code, out := a.read("PATCH", at+path, body, "Content-Type: application/json-patch+json")
		if _, err := registry.NewDefinitions(a.reg).Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(out)
		return code, string(text)
	}
	a.read("POST", v2, turnOf("v2", "old", "count", 4))
	if code, says := patch("",
		`[{"op":"replace","path":"/spec/versions/0/storage","value":true},{"op":"replace",`+
			`"path":"/spec/versions/1/storage","value":false}]`); code != 200 || !strings.Contains(says,
		`"storedVersions":["v2","v1"]`) {
		t.Fatal(code, says)
	}
	if _, got := a.read("GET", v1+"/old", ""); fmt.Sprint(got["spec"]) != "map[color:red size:4]" {
		t.Errorf("an object of the former storage version: %v", got)
	}
	if code, says := patch("", `[{"op":"remove","path":"/spec/versions/1"}]`); code != 422 ||
		!strings.Contains(says, "status.storedVersions[0]: Invalid value: \\\"v2\\\": missing from spec.versions") {
		t.Error(code, says)
	}
	a.read("PUT", v1+"/old", turnOf("v1", "old", "size", 4)) // as a migration does
	if code, says := patch("/status", `[{"op":"replace","path":"/status/storedVersions","value":["v1"]}]`); code != 200 {
		t.Error(code, says)
	}
	if code, says := patch("", `[{"op":"remove","path":"/spec/versions/1"}]`); code != 200 {
		t.Error(code, says)
	}
	if code, got := a.read("GET", v1+"/old", ""); code != 200 || fmt.Sprint(got["spec"]) != "map[color:red size:4]" {
		t.Errorf("after the version was removed: %d %v", code, got)
	}
}
