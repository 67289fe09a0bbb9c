package openapi_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/utils/clock"

	"monopod/apiserver/aggregate"
	"monopod/apiserver/discovery/openapi"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/definitions"
	"monopod/apiserver/registry/kind"
)

// documents describes all kinds.
func documents() *openapi.Documents {
	return openapi.New(openapi.Config{
		Resources: registry.Resources,
		Version:   "v1.37.2", Clock: clock.RealClock{},
	})
}

// all returns the v3 documents by name, and the v2 document as "v2".
func all(t *testing.T) map[string]*openapi.Text {
	t.Helper()
	d := documents()
	index, err := d.Index()
	if err != nil {
		t.Fatal(err)
	}
	var listed struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(index, &listed); err != nil {
		t.Fatal(err)
	}
	docs := map[string]*openapi.Text{}
	for name, at := range listed.Paths {
		doc, err := openapi.Composed(d, name)
		if err != nil || doc == nil {
			t.Fatalf("%s: %v", name, err)
		}
		if at.ServerRelativeURL != "/openapi/v3/"+name+"?hash="+doc.Hash {
			t.Errorf("%s is at %s", name, at.ServerRelativeURL)
		}
		docs[name] = doc
	}
	if docs["v2"], err = openapi.Composed(d, ""); err != nil {
		t.Fatal(err)
	}
	return docs
}

// TestDocuments composes all documents once and runs several checks on them.
func TestDocuments(t *testing.T) {
	t.Parallel()
	docs := all(t)
	for name, look := range map[string]func(*testing.T, map[string]*openapi.Text){
		"are closed": closed, "describe every kind": everyKind, "as protobuf": protobuf, "operations": operations,
	} {
		t.Run(name, func(t *testing.T) { look(t, docs) })
	}
}

// A document refers only to what it defines, and operation IDs are unique.
func closed(t *testing.T, docs map[string]*openapi.Text) {
	t.Parallel()
	mention := regexp.MustCompile(`"\$ref":"#/(definitions|components/schemas|parameters)/([^"]+)"`)
	id := regexp.MustCompile(`"operationId":"([^"]+)"`)
	for name, doc := range docs {
		var parts struct {
			Definitions, Parameters map[string]any
			Components              struct{ Schemas map[string]any }
		}
		if err := json.Unmarshal(doc.JSON, &parts); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		in := map[string]map[string]any{"definitions": parts.Definitions, "parameters": parts.Parameters,
			"components/schemas": parts.Components.Schemas}
		for _, ref := range mention.FindAllStringSubmatch(string(doc.JSON), -1) {
			if in[ref[1]][ref[2]] == nil {
				t.Errorf("%s refers to %s, which it does not contain", name, ref[0])
			}
		}
		seen := map[string]bool{}
		for _, op := range id.FindAllStringSubmatch(string(doc.JSON), -1) {
			if seen[op[1]] {
				t.Errorf("%s has two operations with the ID %s", name, op[1])
			}
			seen[op[1]] = true
		}
	}
}

// Every served kind is described where clients expect it: in the v3 document of its group and version and in v2,
// with a patch that has the parameter fieldValidation, by which kubectl detects server-side validation.
func everyKind(t *testing.T, docs map[string]*openapi.Text) {
	t.Parallel()
	parsed := map[string]spec3.OpenAPI{}
	for _, res := range registry.Resources() {
		name := "apis/" + res.GVR.GroupVersion().String()
		if res.GVR.Group == "" {
			name = "api/" + res.GVR.Version
		}
		doc := parsed[name]
		if doc.Paths == nil {
			if err := json.Unmarshal(docs[name].JSON, &doc); err != nil {
				t.Fatal(err)
			}
			parsed[name] = doc
		}
		gvk := `{"group":"` + res.GVR.Group + `","kind":"` + res.Kind + `","version":"` + res.GVR.Version + `"}`
		if !described(doc, res.GVK()) {
			t.Errorf("%s does not describe %s", name, res.GVK())
		}
		if !strings.Contains(string(docs["v2"].JSON), `"x-kubernetes-group-version-kind":[`+gvk) {
			t.Errorf("v2 does not describe %s", res.GVK())
		}
		if res.Can("patch") && !validates(doc, res.GVK()) {
			t.Errorf("%s: no patch of %s has the parameter fieldValidation", name, res.GVK())
		}
	}
}

func described(doc spec3.OpenAPI, want schema.GroupVersionKind) bool {
	for _, s := range doc.Components.Schemas {
		var kinds []schema.GroupVersionKind
		if err := s.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err == nil &&
			slices.Contains(kinds, want) {
			return true
		}
	}
	return false
}

// validates is kubectl's check (cli-runtime: queryParamVerifierV3).
func validates(doc spec3.OpenAPI, want schema.GroupVersionKind) bool {
	for _, path := range doc.Paths.Paths {
		if path.Patch == nil {
			continue
		}
		var kind schema.GroupVersionKind
		if err := path.Patch.Extensions.GetObject("x-kubernetes-group-version-kind", &kind); err != nil || kind != want {
			continue
		}
		for _, p := range path.Patch.Parameters {
			if p.Name == "fieldValidation" && p.In == "query" {
				return true
			}
		}
	}
	return false
}

// The protobuf, encoded piece by piece, equals that of the whole document.
func protobuf(t *testing.T, docs map[string]*openapi.Text) {
	t.Parallel()
	for _, name := range []string{"v2", "apis/apps/v1", "version"} {
		data, err := docs[name].Protobuf()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var want proto.Message
		var got proto.Message = &openapi_v3.Document{}
		if name == "v2" {
			got = &openapi_v2.Document{}
			want, err = openapi_v2.ParseDocument(docs[name].JSON)
		} else {
			want, err = openapi_v3.ParseDocument(docs[name].JSON)
		}
		if err != nil {
			t.Fatalf("%s is not OpenAPI: %v", name, err)
		}
		if err := proto.Unmarshal(data, got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("%s: the protobuf differs from that of the whole document", name)
		}
	}
}

// The options of a group only contain its own kinds and the core ones.
func TestOptionsOfOneGroup(t *testing.T) {
	t.Parallel()
	doc, err := openapi.Composed(documents(), "apis/apps/v1")
	if err != nil {
		t.Fatal(err)
	}
	var parsed spec3.OpenAPI
	if err := json.Unmarshal(doc.JSON, &parsed); err != nil {
		t.Fatal(err)
	}
	var kinds []schema.GroupVersionKind
	options := parsed.Components.Schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]
	if err := options.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err != nil {
		t.Fatal(err)
	}
	want := []schema.GroupVersionKind{{Version: "v1", Kind: "DeleteOptions"},
		{Group: "apps", Version: "v1", Kind: "DeleteOptions"}}
	if !slices.Equal(kinds, want) {
		t.Errorf("DeleteOptions are %v", kinds)
	}
}

// Operations have upstream's IDs and actions, which generated clients and audit tools use.
func operations(t *testing.T, docs map[string]*openapi.Text) {
	t.Parallel()
	for _, c := range []struct{ doc, path, method, id, action string }{
		{"api/v1", "/api/v1/namespaces/{namespace}/pods", "get", "listCoreV1NamespacedPod", "list"},
		{"api/v1", "/api/v1/pods", "get", "listCoreV1PodForAllNamespaces", "list"},
		{"api/v1", "/api/v1/namespaces/{namespace}/pods", "post", "createCoreV1NamespacedPod", "post"},
		{"api/v1", "/api/v1/namespaces/{namespace}/pods", "delete", "deleteCoreV1CollectionNamespacedPod",
			"deletecollection"},
		{"api/v1", "/api/v1/namespaces/{namespace}/pods/{name}", "get", "readCoreV1NamespacedPod", "get"},
		{"api/v1", "/api/v1/namespaces/{namespace}/pods/{name}", "put", "replaceCoreV1NamespacedPod", "put"},
		{"api/v1", "/api/v1/namespaces/{namespace}/pods/{name}/log", "get", "readCoreV1NamespacedPodLog", "get"},
		{"api/v1", "/api/v1/namespaces/{namespace}/pods/{name}/exec", "post", "connectCoreV1PostNamespacedPodExec",
			"connect"},
		{"api/v1", "/api/v1/namespaces/{namespace}/pods/{name}/binding", "post", "createCoreV1NamespacedPodBinding", "post"},
		{"api/v1", "/api/v1/nodes/{name}", "delete", "deleteCoreV1Node", "delete"},
		{"apis/apps/v1", "/apis/apps/v1/namespaces/{namespace}/replicasets/{name}", "patch",
			"patchAppsV1NamespacedReplicaSet", "patch"},
		{"v2", "/apis/scheduling.k8s.io/v1/priorityclasses", "post", "createSchedulingV1PriorityClass", "post"},
		{"v2", "/version/", "get", "getCodeVersion", ""},
		{"apis/apps", "/apis/apps/", "get", "getAppsAPIGroup", ""},
		{"apis/apps/v1", "/apis/apps/v1/", "get", "getAppsV1APIResources", ""},
	} {
		var doc struct {
			Paths map[string]map[string]json.RawMessage
		}
		if err := json.Unmarshal(docs[c.doc].JSON, &doc); err != nil {
			t.Fatal(err)
		}
		var op struct {
			OperationID string
			Action      string `json:"x-kubernetes-action"`
		}
		if err := json.Unmarshal(doc.Paths[c.path][c.method], &op); err != nil {
			t.Errorf("%s %s: %v", c.method, c.path, err)
		}
		if op.OperationID != c.id || op.Action != c.action {
			t.Errorf("%s %s is %s (%s), want %s (%s)", c.method, c.path, op.OperationID, op.Action, c.id, c.action)
		}
	}
}

// The schemas are not in memory before the first request and some minutes after the last.
func TestSchemasAreReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := documents()
		if openapi.Held(d) {
			t.Error("schemas are in memory before the first request")
		}
		for range 3 {
			if _, err := d.Index(); err != nil || !openapi.Held(d) {
				t.Fatalf("held %t, %v", openapi.Held(d), err)
			}
			time.Sleep(time.Minute)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if openapi.Held(d) {
			t.Error("schemas stay in memory")
		}
	})
}

// After the last document is sent and the schemas are released, the heap has its former size.
func TestMemoryIsReleased(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	d := documents()
	openapi.Release(d)
	before := heap()
	if _, err := d.V2(false); err != nil {
		t.Fatal(err)
	}
	held := heap() - before
	openapi.Release(d)
	after := heap() - before
	if held > 4<<20 || after > 1<<20 {
		t.Errorf("schemas take %d bytes while in use, want 4 MB, and %d after, want none", held, after)
	}
	runtime.KeepAlive(d)
}

func BenchmarkV2(b *testing.B) {
	d := documents()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.V2(false); err != nil {
			b.Fatal(err)
		}
	}
}

// custom is the schema of a custom kind that counts how often it was asked.
type custom struct {
	kind.Schema
	name  string
	asked *int
}

func (c custom) Revision() string { *c.asked++; return c.name }

func (c custom) Definitions() ([]*definitions.Definition, error) {
	*c.asked++
	return []*definitions.Definition{{Name: c.name, V2: json.RawMessage(`{"type":"object"}`),
		V3: json.RawMessage(`{"type":"object"}`)}}, nil
}

// A document and the index list the served resources once, and read each version's schema once, for any number of
// versions.
func TestEachVersionOnce(t *testing.T) {
	t.Parallel()
	var listed, asked int
	resources := registry.Resources()
	for i := range 200 {
		gv := schema.GroupVersion{Group: "example.com", Version: fmt.Sprintf("v%d", i+1)}
		resources = append(resources,
			kind.Resource{GVR: gv.WithResource("widgets"), Kind: "Widget",
				Schema: custom{name: "com.example." + gv.Version, asked: &asked}})
	}
	d := openapi.New(
		openapi.Config{Version: "v1.37.2", Clock: clock.RealClock{},
			Resources: func() []kind.Resource { listed++; return resources }})
	if _, err := d.Index(); err != nil { // which also reads the hashes of the built-in kinds
		t.Fatal(err)
	}
	for name, ask := range map[string]func() error{
		"index": func() error { _, err := d.Index(); return err },
		"v2":    func() error { _, err := d.V2(false); return err },
	} {
		listed, asked = 0, 0
		if err := ask(); err != nil || listed != 1 || asked != 200 {
			t.Errorf("%s: listed %d times, asked %d schemas of 200 (%v)", name, listed, asked, err)
		}
	}
}

// Concurrent requests for a document share its bytes: it is composed once until the served resources change.
func TestComposedOnce(t *testing.T) {
	t.Parallel()
	var asked int
	custom := kind.Resource{GVR: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
		Kind:   "Widget",
		Schema: custom{name: "com.example.v1.Widget", asked: &asked}}
	var resources atomic.Pointer[[]kind.Resource]
	change := func() { all := append(registry.Resources(), custom); resources.Store(&all) }
	var parts []*aggregate.Part
	d := openapi.New(
		openapi.Config{Version: "v1.37.2", Clock: clock.RealClock{},
			Resources: func() []kind.Resource { return *resources.Load() },
			Foreign:   func() []*aggregate.Part { return parts }})
	v2 := func() (*openapi.Document, error) { return d.V2(false) }
	v3 := func() (*openapi.Document, error) { return d.V3("apis/example.com/v1", true) }
	for _, step := range []struct {
		name string
		read func() (*openapi.Document, error)
		do   func()
		want int // schemas read
	}{
		{"v2", v2, change, 1},
		{"v2 again", v2, func() {}, 0},
		{"v3", v3, func() {}, 2}, // also for its hash
		{"v2 after v3", v2, func() {}, 0},
		{"a definition has changed", v2, change, 1},
		{"a definition has changed, v3", v3, func() {}, 2},
		{"another server's part", v2, func() { parts = []*aggregate.Part{part(t)} }, 1},
		{"the same part", v2, func() {}, 0},
	} {
		step.do()
		asked = 0
		var wg sync.WaitGroup
		docs := make([]*openapi.Document, 50)
		for i := range docs {
			wg.Go(func() {
				doc, err := step.read()
				if err != nil {
					t.Error(err)
				}
				docs[i] = doc
			})
		}
		wg.Wait()
		if asked != step.want {
			t.Errorf("%s: 50 requests read the schema %d times, want %d", step.name, asked, step.want)
		}
		for _, doc := range docs {
			if doc == nil || doc != docs[0] {
				t.Fatalf("%s: requests do not share the document", step.name)
			}
		}
	}
	if doc, err := d.V3("apis/nobody.example/v1", false); doc != nil || err != nil {
		t.Errorf("an unknown name: %v, %v", doc, err)
	}
}

func part(t *testing.T) *aggregate.Part {
	t.Helper()
	part, err := aggregate.Read([]byte(`{"paths":{"/apis/a.example.com/v1/":{}}}`), "/apis/a.example.com/v1/")
	if err != nil || part == nil {
		t.Fatal(err)
	}
	return part
}
