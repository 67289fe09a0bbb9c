package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// step is one request of a scenario: "PATCH manager[!] body" and so on, see run.
type step struct {
	do   string // apply, force, merge, put or scale, and the manager
	body string
	want int    // 0: 200
	has  string // in the response
}

const (
	configMap  = "/api/v1/namespaces/default/configmaps/a"
	deployment = "/apis/apps/v1/namespaces/default/deployments/a"
	pod        = "/api/v1/namespaces/default/pods/a"
	service    = "/api/v1/namespaces/default/services/a"

	conflict = http.StatusConflict
)

func cm(fields string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},` + fields + `}`
}

func deploy(fields string) string {
	return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},` +
		`"spec":{"selector":{"matchLabels":{"a":"b"}},` +
		`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}` + fields + `}}`
}

func scale(replicas int) string {
	return fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":%d}}`,
		replicas)
}

func container(fields string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[` + fields + `]}}`
}

// Scenarios of server-side apply. Each ends with the expected managers of the object, and what it must and must
// not contain.
func TestApply(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path     string
		steps    []step
		managers string // "manager Operation[/subresource]" of each, sorted
		has      []string
		hasNot   []string
	}{
		"creates": {configMap, []step{
			{"apply ann", cm(`"data":{"x":"1"}`), 201, `"x":"1"`},
		}, "ann Apply", []string{`"f:data":{"f:x":{}}`, `"fieldsType":"FieldsV1"`, `"apiVersion":"v1"`},
			[]string{`"f:kind"`, `"f:uid"`}},
		"creates from YAML": {configMap, []step{
			{"apply ann", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1'}\n", 201, `"x":"1"`},
		}, "ann Apply", []string{`"f:x":{}`}, nil},
		"name from the path": {configMap, []step{
			{"apply ann", `{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"1"}}`, 201, `"name":"a"`},
		}, "ann Apply", nil, nil},
		"removes a field that is no longer applied": {configMap, []step{
			{"apply ann", cm(`"data":{"x":"1","y":"2"}`), 201, ""},
			{"apply ann", cm(`"data":{"x":"1"}`), 0, ""},
		}, "ann Apply", []string{`"x":"1"`}, []string{`"y"`}},
		"conflicts": {configMap, []step{
			{"apply ann", cm(`"data":{"x":"1"}`), 201, ""},
			{"apply bob", cm(`"data":{"x":"2"}`), conflict,
				`"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"ann\"","field":".data.x"}]`},
			{"apply bob", cm(`"data":{"x":"2"}`), conflict, `Apply failed with 1 conflict: conflict with \"ann\": .data.x`},
		}, "ann Apply", []string{`"x":"1"`}, nil},
		"forces": {configMap, []step{
			{"apply ann", cm(`"data":{"x":"1"}`), 201, ""},
			{"force bob", cm(`"data":{"x":"2"}`), 0, `"x":"2"`},
		}, "bob Apply", []string{`"x":"2"`}, nil},
		"shares": {configMap, []step{
			{"apply ann", cm(`"data":{"x":"1","y":"2"}`), 201, ""},
			{"apply bob", cm(`"data":{"x":"1"}`), 0, ""},
			{"apply ann", cm(`"data":{"y":"2"}`), 0, `"x":"1"`}, // bob still manages it
		}, "ann Apply, bob Apply", []string{`"x":"1"`}, nil},
		"conflicts with an update": {configMap, []step{
			{"apply ann", cm(`"data":{"x":"1"}`), 201, ""},
			{"merge bob", `{"data":{"x":"2"}}`, 0, ""},
			{"apply ann", cm(`"data":{"x":"1"}`), conflict, `conflict with \"bob\" using v1`},
		}, "bob Update", []string{`"x":"2"`}, nil},
		"an update keeps the manager of an unchanged field": {configMap, []step{
			{"apply ann", cm(`"data":{"x":"1"}`), 201, ""},
			{"put bob", cm(`"data":{"x":"1","y":"2"}`), 0, ""},
		}, "ann Apply, bob Update", []string{`"x":"1"`, `"f:y":{}`}, nil},
		"before-first-apply": {configMap, []step{
			{"put-new bob", cm(`"data":{"x":"1"}`), 201, ""},
			{"apply ann", cm(`"data":{"x":"2"}`), conflict, `conflict with \"before-first-apply\" using v1`},
			{"apply ann", cm(`"data":{"y":"2"}`), 0, ""},
		}, "ann Apply, before-first-apply Update", []string{`"x":"1"`, `"y":"2"`}, nil},
		"no managedFields without an apply": {configMap, []step{
			{"put-new bob", cm(`"data":{"x":"1"}`), 201, ""},
			{"merge bob", `{"data":{"x":"2"}}`, 0, ""},
		}, "", nil, []string{"managedFields"}},
		"reset": {configMap, []step{
			{"apply ann", cm(`"data":{"x":"1"}`), 201, ""},
			{"merge bob", `{"metadata":{"managedFields":[{}]}}`, 0, ""},
		}, "", []string{`"x":"1"`}, []string{"managedFields"}},
		"list items by key": {pod, []step{
			{"apply ann", container(`{"name":"c","image":"i"}`), 201, ""},
			{"force bob", container(`{"name":"c","image":"j"}`), 0, ""},
			{"apply ann", container(`{"name":"c"}`), 0, `"image":"j"`},
		}, "ann Apply, bob Apply", []string{`"k:{\"name\":\"c\"}":{".":{},"f:image":{}`}, nil},
		"removes a list item": {service, []step{
			{"apply ann",
				`{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"name":"p","port":1,"protocol":"TCP"},{"name":"q",` +
					`"port":2,"protocol":"TCP"}]}}`, 201, ""},
			{"apply ann", `{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"name":"q","port":2,"protocol":"TCP"}]}}`, 0,
				`"name":"q"`},
		}, "ann Apply", nil, []string{`"name":"p"`}},
		"sets": {configMap, []step{
			{"apply ann", cm(`"metadata":{"name":"a","finalizers":["x/a","x/b"]}`), 201, ""},
			{"apply bob", cm(`"metadata":{"name":"a","finalizers":["x/c"]}`), 0, `["x/a","x/b","x/c"]`},
			{"apply ann", cm(`"metadata":{"name":"a","finalizers":["x/a"]}`), 0, `["x/a","x/c"]`},
		}, "ann Apply, bob Apply", []string{`"v:\"x/a\"":{}`}, []string{"x/b"}},
		"labels": {configMap, []step{
			{"apply ann", cm(`"metadata":{"name":"a","labels":{"x":"1"}}`), 201, ""},
			{"apply bob", cm(`"metadata":{"name":"a","labels":{"y":"1"}}`), 0, `"labels":{"x":"1","y":"1"}`},
		}, "ann Apply, bob Apply", nil, nil},
		"status": {deployment, []step{
			{"apply ann", deploy(`,"replicas":2`), 201, ""},
			{"apply/status bob",
				`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"replicas":9},` +
					`"status":{"replicas":2,"conditions":[{"type":"Available","status":"True"}]}}`, 0, `"replicas":2`},
		}, "ann Apply, bob Apply/status", []string{`"f:status":{"f:conditions":{"k:{\"type\":\"Available\"}"`},
			[]string{`"replicas":9`}},
		"applying the object does not manage its status": {deployment, []step{
			{"apply ann", strings.Replace(deploy(""), `"spec"`, `"status":{"replicas":7},"spec"`, 1), 201, ""},
		}, "ann Apply", nil, []string{"f:status", `"replicas":7`}},
		"scale manages the replicas": {deployment, []step{
			{"apply ann", deploy(`,"replicas":2`), 201, ""},
			{"put/scale hpa", scale(5), 0, `"replicas":5`},
			{"apply ann", deploy(`,"replicas":2`), conflict, `conflict with \"hpa\" with subresource \"scale\" using apps/v1`},
			{"apply ann", deploy(""), 0, `"replicas":5`},
		}, "ann Apply, hpa Update/scale", []string{`"replicas":5`}, nil},
		"scale conflicts": {deployment, []step{
			{"apply ann", deploy(`,"replicas":2`), 201, ""},
			{"apply/scale hpa", scale(5), conflict, `conflict with \"ann\": .spec.replicas`},
			{"force/scale hpa", scale(5), 0, `"replicas":5`},
		}, "ann Apply, hpa Apply/scale", []string{`"replicas":5`}, nil},
		"dry run": {configMap, []step{
			{"apply ann&dryRun=All", cm(`"data":{"x":"1"}`), 201, `"x":"1"`},
			{"apply ann", cm(`"data":{"x":"1"}`), 201, ""},
			{"apply ann&dryRun=All", cm(`"data":{"x":"2"}`), 0, `"x":"2"`},
		}, "ann Apply", []string{`"x":"1"`}, nil},
		"stale resourceVersion": {configMap, []step{
			{"apply ann", cm(`"metadata":{"name":"a","resourceVersion":"1"},"data":{}`), 400, "resourceVersion"},
			{"apply ann", cm(`"data":{"x":"1"}`), 201, ""},
			{"apply ann", cm(`"metadata":{"name":"a","resourceVersion":"1"},"data":{"x":"2"}`), conflict, "has been modified"},
		}, "ann Apply", []string{`"x":"1"`}, nil},
		"UID of another object": {configMap, []step{
			{"apply ann", cm(`"metadata":{"name":"a","uid":"gone"},"data":{}`), conflict, "uid mismatch"},
			{"apply ann", cm(`"data":{"x":"1"}`), 201, ""},
		}, "ann Apply", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := serve(t)
			for _, s := range c.steps {
				a.step(c.path, s)
			}
			_, obj := a.read("GET", c.path, "")
			text, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			if got := managers(t, text); got != c.managers {
				t.Errorf("managed by %q, want %q", got, c.managers)
			}
			check(t, string(text), c.has, c.hasNot)
		})
	}
}

// step runs one step: apply, force (apply with force), merge, put, put-new (create), with an optional
// "/subresource"; then the manager, and more of the query.
func (a API) step(path string, s step) {
	a.t.Helper()
	verb, who, _ := strings.Cut(s.do, " ")
	verb, sub, _ := strings.Cut(verb, "/")
	if sub != "" {
		path += "/" + sub
	}
	method, typ := "PATCH", "application/apply-patch+yaml"
	query := "?fieldManager=" + who
	switch verb {
	case "force":
		query += "&force=true"
	case "merge":
		typ = "application/merge-patch+json"
	case "put":
		method, typ = "PUT", "application/json"
	case "put-new":
		method, typ, path = "POST", "application/json", path[:strings.LastIndex(path, "/")]
	}
	code, answer := a.read(method, path+query, s.body, "Content-Type: "+typ)
	text, _ := json.Marshal(answer)
	if want := max(s.want, 200); code != want || !strings.Contains(string(text), unordered(s.has)) {
		a.t.Fatalf("%s %s: got %d %s, want %d with %s", s.do, s.body, code, text, want, s.has)
	}
}

// unordered sorts the fields of a cause in text, as the server encodes them.
func unordered(text string) string {
	return strings.Replace(text, `{"reason":"FieldManagerConflict","message":"conflict with \"ann\"","field":".data.x"}`,
		`{"field":".data.x","message":"conflict with \"ann\"","reason":"FieldManagerConflict"}`, 1)
}

func check(t *testing.T, text string, has, hasNot []string) {
	t.Helper()
	for _, s := range has {
		if !strings.Contains(text, s) {
			t.Errorf("%s is not in %s", s, text)
		}
	}
	for _, s := range hasNot {
		if strings.Contains(text, s) {
			t.Errorf("%s is in %s", s, text)
		}
	}
}

// managers returns the managers of an object, sorted; each must have a time.
func managers(t *testing.T, text []byte) string {
	t.Helper()
	var obj metav1.PartialObjectMetadata
	if err := json.Unmarshal(text, &obj); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range obj.ManagedFields {
		name := e.Manager + " " + string(e.Operation)
		if e.Subresource != "" {
			name += "/" + e.Subresource
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// Applying the same again writes nothing: no new revision, no new time.
func TestApplyOfNothingNew(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for _, path := range []string{configMap, deployment} {
		body := cm(`"data":{"x":"1"}`)
		if path == deployment {
			body = deploy("")
		}
		a.step(path, step{"apply ann", body, 201, ""})
		before, err := json.Marshal(second(a.read("GET", path, "")))
		if err != nil {
			t.Fatal(err)
		}
		a.step(path, step{"apply ann", body, 0, ""})
		after, err := json.Marshal(second(a.read("GET", path, "")))
		if err != nil || string(before) != string(after) {
			t.Errorf("%s was %s and is %s, %v", path, before, after, err)
		}
	}
}

func second[T any](_ int, v T) T { return v }

// Invalid applies are refused as errors of the client.
func TestApplyRefused(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.step(configMap, step{"apply ann", cm(`"data":{"x":"1"}`), 201, ""})
	for name, c := range map[string]struct {
		query, body string
		want        int
		has         string
	}{
		"without a manager": {"", cm(`"data":{}`), 422,
			"fieldManager: Required value: is required for apply patch"},
		"a manager with a control character": {"fieldManager=%07", cm(`"data":{}`), 422, "invalid character U+0007"},
		"another kind": {"fieldManager=a", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`, 400,
			"invalid object type"},
		"another version": {"fieldManager=a", `{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"a"}}`, 400,
			"invalid object type"},
		"no kind": {"fieldManager=a", `{"data":{"x":"2"}}`, 400, "invalid object type"},
		"another name": {"fieldManager=a", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`, 400,
			"does not match the name on the URL"},
		"another namespace": {"fieldManager=a",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}`, 400, "namespace"},
		"with managedFields": {"fieldManager=a", cm(`"metadata":{"name":"a","managedFields":[{"manager":"x"}]}`), 400,
			"metadata.managedFields must be nil"},
		"an unknown field": {"fieldManager=a", cm(`"date":{}`), 400, ".date: field not declared in schema"},
		"a wrong type":     {"fieldManager=a", cm(`"data":[]`), 400, "expected map"},
		"a field twice": {"fieldManager=a&fieldValidation=Strict", cm(`"data":{},"data":{}`), 400,
			`duplicate field \"data\"`},
		"a key of YAML twice": {"fieldManager=a&fieldValidation=Strict",
			"apiVersion: v1\nkind: ConfigMap\ndata: {}\ndata: {}", 400, "already"},
		"invalid YAML":  {"fieldManager=a", "{", 400, "error decoding patch"},
		"a list":        {"fieldManager=a", "[]", 400, "error decoding patch"},
		"null":          {"fieldManager=a", "null", 400, "null is not an object"},
		"nothing":       {"fieldManager=a", "", 400, "error decoding patch"},
		"two documents": {"fieldManager=a", cm(`"data":{}`) + "\n---\n" + cm(`"data":{}`), 400, "several documents"},
		"a number that takes too long to parse": {"fieldManager=a",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"spec":{"x":1e99999999}}`,
			400, "error decoding patch"},
	} {
		t.Run(name, func(t *testing.T) {
			a := API{t, a.url, a.hc, a.reg}
			code, answer := a.read("PATCH", configMap+"?"+c.query, c.body, "Content-Type: application/apply-patch+yaml")
			text, _ := json.Marshal(answer["message"])
			if code != c.want || !strings.Contains(string(text), c.has) {
				t.Errorf("got %d %s, want %d with %s", code, text, c.want, c.has)
			}
		})
	}
	if _, obj := a.read("GET", configMap, ""); obj["data"].(map[string]any)["x"] != "1" {
		t.Errorf("a refused apply changed %v", obj)
	}
}

// Quantities with a huge exponent are refused at once, in every kind of request.
func TestHugeExponents(t *testing.T) {
	t.Parallel()
	a := serve(t)
	const amount = `{"name":"c","image":"i","resources":{"limits":{"cpu":"1e99999999"}}}`
	a.step(pod, step{"apply ann", container(`{"name":"c","image":"i"}`), 201, ""})
	pods := strings.TrimSuffix(pod, "/a")
	for name, c := range map[string]struct {
		method, path, typ, body string
		want                    int
	}{
		"create":       {"POST", pods, "application/json", container(amount), 400},
		"create, YAML": {"POST", pods, "application/yaml", strings.ReplaceAll(container(amount), ",", ", "), 400},
		"update":       {"PUT", pod, "application/json", container(amount), 400},
		"merge":        {"PATCH", pod, "application/merge-patch+json", container(amount), 422},
		"strategic":    {"PATCH", pod, "application/strategic-merge-patch+json", container(amount), 422},
		"JSON patch": {"PATCH", pod, "application/json-patch+json",
			`[{"op":"add","path":"/spec/overhead","value":{"cpu":"1e99999999"}}]`, 422},
		"apply": {"PATCH", pod + "?fieldManager=a&force=true", "application/apply-patch+yaml", container(amount), 400},
		"apply, hidden": {"PATCH", pod + "?fieldManager=a&force=true", "application/apply-patch+yaml",
			container(strings.ReplaceAll(amount, "1e9", `1\u00659`)), 400},
		"apply, a number": {"PATCH", pod + "?fieldManager=a&force=true", "application/apply-patch+yaml",
			container(strings.ReplaceAll(amount, `"1e99999999"`, "1e99999999")), 400},
	} {
		t.Run(name, func(t *testing.T) {
			a := API{t, a.url, a.hc, a.reg}
			if code, answer := a.read(c.method, c.path, c.body, "Content-Type: "+c.typ); code != c.want {
				t.Errorf("got %d %v, want %d", code, answer, c.want)
			}
		})
	}
}

// Every kind that can be patched can be applied, so its schema and the fields of its managers are known.
func TestApplyEveryKind(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for _, res := range a.reg.Resources() {
		if !res.Can("patch") || res.Virtual {
			continue
		}
		path := "/apis/" + res.GVR.GroupVersion().String()
		if res.GVR.Group == "" {
			path = "/api/" + res.GVR.Version
		}
		if res.Namespaced {
			path += "/namespaces/default"
		}
		body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"labels":{"a":"b"}}}`, res.GVR.GroupVersion(), res.Kind)
		code, answer := a.read("PATCH", path+"/"+res.GVR.Resource+"/applied"+strings.ReplaceAll(res.GVR.Group, ".", "-")+
			"?fieldManager=ann", body, "Content-Type: application/apply-patch+yaml")
		text, _ := json.Marshal(answer)
		switch { // a kind that has more required fields lists them
		case code == http.StatusCreated && strings.Contains(string(text), `"f:labels":{"f:a":{}}`):
		case code == http.StatusUnprocessableEntity:
		default:
			t.Errorf("%s: got %d %s", res.GVR, code, text)
		}
	}
}
