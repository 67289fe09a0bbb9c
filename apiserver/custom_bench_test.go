package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/client"
	"monopod/apiserver/client/crd"
	"monopod/apiserver/codec"
	"monopod/apiserver/registry"
	"monopod/store"
)

const benchFields = 40

// benchDefinition has a schema with 40 fields of four types, each with a description and a limit.
func benchDefinition(plural string) *crd.Definition {
	fields := map[string]apiextensionsv1.JSONSchemaProps{}
	for i := range benchFields {
		field := apiextensionsv1.JSONSchemaProps{Description: fmt.Sprintf("Field %d says how the object behaves in one respect.", i), Type: "string", MaxLength: new(int64(64))}
		switch i % 4 {
		case 1:
			field.Type, field.MaxLength, field.Minimum = "integer", nil, new(float64(0))
		case 2:
			field.Type, field.MaxLength = "boolean", nil
		case 3:
			field = apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}}
		}
		fields[fmt.Sprintf("field%02d", i)] = field
	}
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: plural[:len(plural)-1], Kind: "Kind" + plural, ListKind: "Kind" + plural + "List"}
	return crd.Of(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".bench.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "bench.example.com", Scope: apiextensionsv1.NamespaceScoped, Names: names,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": {Type: "object", Properties: fields}}}}}}},
	})
}

// benchObject is about 1 KB of JSON for that schema, and benchConfigMap a ConfigMap of the same size.
func benchObject(name string) string {
	var b strings.Builder
	for i := range benchFields {
		value := `"a value of text"`
		switch i % 4 {
		case 1:
			value = "12345"
		case 2:
			value = "true"
		case 3:
			value = `["one","two"]`
		}
		fmt.Fprintf(&b, `,"field%02d":%s`, i, value)
	}
	return `{"apiVersion":"bench.example.com/v1","kind":"Kindwidgets","metadata":{"name":"` + name + `"},"spec":{` + b.String()[1:] + `}}`
}

func benchConfigMap(name string) string {
	var b strings.Builder
	for i := range benchFields {
		fmt.Fprintf(&b, `,"field%02d":"a value of tex"`, i)
	}
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{` + b.String()[1:] + `}}`
}

// withDefinitions is a server with these definitions, each with that number of versions, as their controller accepts them.
func withDefinitions(b *testing.B, versions int, names ...string) (http.Handler, *registry.Registry) {
	b.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	b.Cleanup(func() { s.Close() })
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, name := range names {
		def := benchDefinition(name)
		for n := 2; n <= versions; n++ {
			more := def.Spec.Versions[0]
			more.Name, more.Storage = fmt.Sprintf("v%d", n), false
			def.Spec.Versions = append(def.Spec.Versions, more)
		}
		if _, err := reg.Create(b.Context(), def); err != nil {
			b.Fatal(err)
		}
		if _, err := client.Update(b.Context(), reg, def, "status", func(d *crd.Definition) error {
			d.Status.AcceptedNames = d.Spec.Names
			d.Status.Conditions = append(d.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue})
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := registry.NewDefinitions(reg).Load(b.Context()); err != nil {
		b.Fatal(err)
	}
	everybody := auth.Func(func(*http.Request) (auth.User, bool) { return auth.Admin, true })
	srv, err := New(context.Background(), Config{Registry: reg, Authenticator: everybody})
	if err != nil {
		b.Fatal(err)
	}
	return srv.Handler(), reg
}

func send(b *testing.B, h http.Handler, method, path, body string) {
	b.Helper()
	r := httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	r.Header.Set("Accept", codec.TypeJSON)
	r.Header.Set("Content-Type", codec.TypeJSON)
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code > 201 {
		b.Fatalf("%s %s: %d %.300s", method, path, w.Code, w.Body)
	}
}

// benchKinds are the custom kind and what it is compared with.
var benchKinds = map[string]struct {
	at     string
	object func(name string) string
}{
	"custom":    {"/apis/bench.example.com/v1/namespaces/default/widgets", benchObject},
	"configmap": {"/api/v1/namespaces/default/configmaps", benchConfigMap},
}

// BenchmarkCustomObject measures requests for an object of 1 KB without TLS and HTTP.
func BenchmarkCustomObject(b *testing.B) {
	for name, kind := range benchKinds {
		b.Run("create/"+name, func(b *testing.B) {
			h, _ := withDefinitions(b, 1, "widgets")
			n, before := 0, cpu()
			for b.Loop() {
				n++
				send(b, h, "POST", kind.at, kind.object(fmt.Sprintf("o%d", n)))
			}
			b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(n), "cpu-ns/op")
		})
		b.Run("get/"+name, func(b *testing.B) {
			h, _ := withDefinitions(b, 1, "widgets")
			send(b, h, "POST", kind.at, kind.object("a"))
			for b.Loop() {
				send(b, h, "GET", kind.at+"/a", "")
			}
		})
	}
}

// BenchmarkCustomWatch measures a change that a hundred watches over HTTP receive, clients included.
func BenchmarkCustomWatch(b *testing.B) {
	for name, kind := range benchKinds {
		b.Run(name, func(b *testing.B) {
			h, _ := withDefinitions(b, 1, "widgets")
			srv := httptest.NewServer(h)
			b.Cleanup(srv.Close)
			send(b, h, "POST", kind.at, kind.object("a"))
			wait := watched(b, srv, kind.at)
			wait() // for the object that is there
			n, before := 0, cpu()
			for b.Loop() {
				n++
				send(b, h, "PUT", kind.at+"/a", strings.Replace(kind.object("a"), `{"name":"a"}`, fmt.Sprintf(`{"name":"a","labels":{"n":"%d"}}`, n), 1))
				wait()
			}
			b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(n*watchers), "cpu-ns/event")
		})
	}
}

// cpu returns the processor time of the process, which other work on the machine changes less than the time of the clock.
func cpu() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// heap returns the live bytes.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkCustomMemory measures the memory of 10,000 stored objects, history for watches included, and of 300 definitions
// whose kinds are not used.
func BenchmarkCustomMemory(b *testing.B) {
	const objects, definitions = 10_000, 300
	for name, kind := range benchKinds {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				h, reg := withDefinitions(b, 1, "widgets")
				send(b, h, "POST", kind.at, kind.object("first")) // compiles the schema
				before := heap()
				for n := range objects {
					send(b, h, "POST", kind.at, kind.object(fmt.Sprintf("o%d", n)))
				}
				b.ReportMetric((heap()-before)/objects, "bytes/object")
				b.ReportMetric(float64(len(kind.object("o1234"))), "json-bytes/object")
				runtime.KeepAlive(reg)
			}
		})
	}
	b.Run("definitions", func(b *testing.B) {
		var names []string
		for n := range definitions {
			names = append(names, fmt.Sprintf("kind%03ds", n))
		}
		for b.Loop() {
			none, _ := withDefinitions(b, 1)
			before := heap()
			h, reg := withDefinitions(b, 1, names...)
			b.ReportMetric((heap()-before)/definitions, "bytes/definition")
			runtime.KeepAlive(reg)
			runtime.KeepAlive(none)
			runtime.KeepAlive(h)
		}
	})
}

// BenchmarkCustomDiscovery measures a group's resources and the aggregated discovery with 300 definitions.
func BenchmarkCustomDiscovery(b *testing.B) {
	var names []string
	for n := range 300 {
		names = append(names, fmt.Sprintf("kind%03ds", n))
	}
	h, _ := withDefinitions(b, 1, names...)
	for name, path := range map[string]string{"group": "/apis/bench.example.com/v1", "all": "/apis"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r := httptest.NewRequestWithContext(context.Background(), "GET", path, nil)
				r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
				h.ServeHTTP(&discard{http.Header{}}, r)
			}
		})
	}
}

// BenchmarkCustomOpenAPI measures the OpenAPI documents of 3,000 versions of custom kinds: 100 of each of 30 definitions.
func BenchmarkCustomOpenAPI(b *testing.B) {
	for _, versions := range []int{10, 100} {
		var names []string
		for n := range 30 {
			names = append(names, fmt.Sprintf("kind%03ds", n))
		}
		h, _ := withDefinitions(b, versions, names...)
		for name, path := range map[string]string{"v2": "/openapi/v2", "index": "/openapi/v3"} {
			b.Run(fmt.Sprintf("%s/%d", name, 30*versions), func(b *testing.B) {
				for b.Loop() {
					send(b, h, "GET", path, "")
				}
			})
		}
	}
}
