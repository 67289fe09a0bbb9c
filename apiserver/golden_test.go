package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// errorsDir contains requests that upstream refuses, with its responses: status code, reason and the causes'
// types and fields. bases.yaml contains the valid objects from which the invalid ones are made.
const errorsDir = "../testdata/golden/errors"

// bad is a request and upstream's response.
type bad struct {
	Base   string            `json:"base"`   // the object sent: one of bases.yaml
	Set    map[string]any    `json:"set"`    // fields to replace, by dotted path; null removes
	Update map[string]any    `json:"update"` // instead: the base is stored, then updated with these fields
	Sub    string            `json:"sub"`    // the update's subresource
	Do     string            `json:"do"`     // instead: METHOD PATH
	Body   any               `json:"body"`   // of Do: an object, or a text sent as it is
	Header map[string]string `json:"header"`
	Want   string            `json:"want"`   // code and reason; empty: 422 Invalid
	Causes []string          `json:"causes"` // "Type field", in any order; for 422 all of them
	Text   string            `json:"text"`   // what the message contains
}

func TestErrorsMatchUpstream(t *testing.T) {
	t.Parallel()
	bases := map[string]map[string]any{}
	readYAML(t, filepath.Join(errorsDir, "bases.yaml"), &bases)
	files, err := filepath.Glob(filepath.Join(errorsDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, file := range files {
		if filepath.Base(file) == "bases.yaml" {
			continue
		}
		var cases []bad
		readYAML(t, file, &cases)
		total += len(cases)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			g := golden{API: serve(t), bases: bases}
			here := `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "here"}}`
			if code, status := g.read("POST", "/api/v1/namespaces/default/configmaps", here); code != http.StatusCreated {
				t.Fatal(status["message"])
			}
			for i, c := range cases {
				g.check(t, i, c)
			}
		})
	}
	if total < 300 {
		t.Errorf("the table has %d requests, it should have 300", total)
	}
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// golden is a server that gets invalid requests.
type golden struct {
	API
	bases map[string]map[string]any
}

func (g golden) check(t *testing.T, n int, c bad) {
	t.Helper()
	request, body := g.request(t, n, c)
	method, path, _ := strings.Cut(request, " ")
	var header []string
	for name, value := range c.Header {
		header = append(header, name+": "+value)
	}
	before := g.reg.Revision()
	resp := g.do(method, path, body, header...)
	if resp.StatusCode < http.StatusBadRequest { // it may be an endless watch
		t.Errorf("%s %s: was accepted: %s", request, body, resp.Status)
		return
	}
	var status metav1.Status
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
		t.Errorf("%s %s: the response is not a Status: %v", request, body, err)
		return
	}
	got := fmt.Sprintf("%d %s", resp.StatusCode, status.Reason)
	want := c.Want
	if want == "" {
		want = "422 Invalid"
	}
	if got != want || !strings.Contains(status.Message, c.Text) {
		t.Errorf("%s %s\n got %s: %s\nwant %s: %s", request, body, got, status.Message, want, c.Text)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(c.Causes)), causes(status)); diff != "" &&
		(len(c.Causes) > 0 || resp.StatusCode == http.StatusUnprocessableEntity) {
		t.Errorf("%s %s: causes (-want +got):\n%s%s", request, body, diff, status.Message)
	}
	if now := g.reg.Revision(); now != before {
		t.Errorf("%s %s: was refused, but something was written", request, body)
	}
}

func causes(status metav1.Status) []string {
	var all []string
	if status.Details != nil {
		for _, c := range status.Details.Causes {
			all = append(all, strings.TrimSpace(string(c.Type)+" "+c.Field))
		}
	}
	slices.Sort(all)
	return all
}

// request is the request line and the body of a case.
func (g golden) request(t *testing.T, n int, c bad) (line, body string) {
	t.Helper()
	if c.Do != "" {
		return c.Do, text(t, c.Body)
	}
	base, ok := g.bases[c.Base]
	if !ok {
		t.Fatalf("no base %q", c.Base)
	}
	obj := runtime.DeepCopyJSON(base)
	metadata := obj["metadata"].(map[string]any)
	path := g.collection(t, obj)
	if c.Update == nil {
		set(t, obj, c.Set)
		return "POST " + path, text(t, obj)
	}
	name := fmt.Sprintf("%v-%d", metadata["name"], n)
	metadata["name"] = name
	code, obj := g.read("POST", path, text(t, obj))
	if code != http.StatusCreated {
		t.Fatalf("base %s: %v", c.Base, obj["message"])
	}
	set(t, obj, c.Update)
	path += "/" + name
	if c.Sub != "" {
		path += "/" + c.Sub
	}
	return "PUT " + path, text(t, obj)
}

// collection is the path at which the object is created.
func (g golden) collection(t *testing.T, obj map[string]any) string {
	t.Helper()
	apiVersion, kind := obj["apiVersion"].(string), obj["kind"].(string)
	for _, r := range g.reg.Resources() {
		if r.Kind != kind || r.GVR.GroupVersion().String() != apiVersion {
			continue
		}
		root := "/apis/" + apiVersion
		if r.GVR.Group == "" {
			root = "/api/v1"
		}
		if r.Namespaced {
			root += "/namespaces/default"
		}
		return root + "/" + r.GVR.Resource
	}
	gv, _ := schema.ParseGroupVersion(apiVersion)
	t.Fatalf("no resource for %s", gv.WithKind(kind))
	return ""
}

func text(t *testing.T, body any) string {
	t.Helper()
	if s, ok := body.(string); ok {
		return s
	}
	if body == nil {
		return ""
	}
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// set changes fields of obj. The parts of a path are separated by dots, or by slashes if a part contains dots.
func set(t *testing.T, obj map[string]any, fields map[string]any) {
	t.Helper()
	for path, value := range fields {
		separator := "."
		if strings.Contains(path, "/") && !strings.Contains(path, ".") || strings.HasPrefix(path, "/") {
			separator = "/"
		}
		parts := strings.Split(strings.TrimPrefix(path, "/"), separator)
		if repeated, ok := value.(map[string]any); ok && len(repeated) == 1 && repeated["$repeat"] != nil {
			value = strings.Repeat("x", int(repeated["$repeat"].(float64)))
		}
		setAt(obj, parts, value)
	}
}

func setAt(in any, parts []string, value any) any {
	if len(parts) == 0 {
		return value
	}
	if list, ok := in.([]any); ok {
		i, err := strconv.Atoi(parts[0])
		if err != nil || i > len(list) {
			panic("no index " + parts[0])
		}
		if i == len(list) {
			list = append(list, nil)
		}
		list[i] = setAt(list[i], parts[1:], value)
		return list
	}
	m, ok := in.(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	if len(parts) == 1 && value == nil {
		delete(m, parts[0])
		return m
	}
	m[parts[0]] = setAt(m[parts[0]], parts[1:], value)
	return m
}
