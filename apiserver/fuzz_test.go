package apiserver

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/registry"
	"monopod/store"
)

// fuzzed is a server over a store in memory that authorizes every request, with one bound pod.
func fuzzed(tb testing.TB) http.Handler {
	tb.Helper()
	_, h := fuzzedRegistry(tb)
	return h
}

// fuzzedRegistry is like fuzzed, and returns the registry, too.
func fuzzedRegistry(tb testing.TB) (*registry.Registry, http.Handler) {
	tb.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	tb.Cleanup(func() { s.Close() })
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(context.Background()); err != nil {
		tb.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default",
		Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if _, err := reg.Create(context.Background(), pod); err != nil {
		tb.Fatal(err)
	}
	everybody := auth.Func(func(*http.Request) (auth.User, bool) { return auth.Admin, true })
	srv, err := New(context.Background(), Config{Registry: reg, Authenticator: everybody})
	if err != nil {
		tb.Fatal(err)
	}
	return reg, srv.Handler()
}

// sane checks that a response is JSON and has no 5xx code except the timeout for a future revision.
func sane(t *testing.T, h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code >= 500 && w.Code != http.StatusGatewayTimeout {
		t.Errorf("%s %s: %d %s", r.Method, r.URL, w.Code, w.Body)
	}
	return w
}

func protobufBody(tb testing.TB, obj interface{ Marshal() ([]byte, error) }, apiVersion, kind string) []byte {
	tb.Helper()
	raw, err := obj.Marshal()
	if err != nil {
		tb.Fatal(err)
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	data, err := envelope.Marshal()
	if err != nil {
		tb.Fatal(err)
	}
	return append(bytes.Clone(codec.Magic), data...)
}

// collections returns the paths at which objects of each kind are created.
func collections() (paths []string) {
	for _, r := range registry.Resources() {
		path := "/apis/" + r.GVR.Group + "/" + r.GVR.Version
		if r.GVR.Group == "" {
			path = "/api/v1"
		}
		if r.Namespaced {
			path += "/namespaces/default"
		}
		paths = append(paths, path+"/"+r.GVR.Resource)
	}
	return paths
}

var bodyTypes = []string{codec.TypeJSON, codec.TypeYAML, codec.TypeProtobuf, ""}

// The server stores any body as an object that can be read back, or refuses it.
func FuzzBody(f *testing.F) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	f.Add(uint8(2), uint8(0), protobufBody(f, pod, "v1", "Pod"))
	f.Add(uint8(2), uint8(1),
		protobufBody(f, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Data: map[string]string{"k": "\xff"}},
			"v1", "ConfigMap"))
	f.Add(uint8(2), uint8(0), []byte("k8s\x00\x0a\xff"))
	for _, body := range []string{
		`{"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, `null`, `[]`, `"x"`, ``, `{`,
		`{"metadata":null,"spec":null}`,
		`{"metadata":{"name":"b","labels":{"a":null},"ownerReferences":[null],"finalizers":[null]},` +
			`"spec":{"containers":[null],"volumes":[null]}}`,
		`{"metadata":{"name":"b","name":"c"}}`, `{"metadata":{"generateName":"` + strings.Repeat("é", 100) + `"}}`,
		`{"kind":"Secret","apiVersion":"v1"}`,
		`{"metadata":{"name":"b"},"spec":{"replicas":-1,"selector":{"matchExpressions":[{"key":"a","operator":"x"}]},` +
			`"template":{"spec":{"containers":[{}]}}}}`,
		`{"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1e99999"}},` +
			`"ports":[{"containerPort":-1}],"livenessProbe":{"httpGet":{"port":"x"}}}]}}`,
		"metadata: {name: b}\n---\nmetadata: {name: c}\n", "# c\n---\n- a\n", "a: &a [*a]", "? {a: b}\n: c",
	} {
		for n := range bodyTypes {
			f.Add(uint8(n), uint8(len(body)), []byte(body))
		}
	}
	paths := collections()
	h := fuzzed(f)
	f.Fuzz(func(t *testing.T, typ, at uint8, data []byte) {
		r := httptest.NewRequest(http.MethodPost, paths[int(at)%len(paths)]+"?dryRun=All", bytes.NewReader(data))
		r.Header.Set("Content-Type", bodyTypes[int(typ)%len(bodyTypes)])
		sane(t, h, r)
		r = httptest.NewRequest(http.MethodPut, "/api/v1/namespaces/default/pods/a?dryRun=All", bytes.NewReader(data))
		sane(t, h, r)
	})
}

// All list options lead to a list or to an error of the client.
func FuzzListOptions(f *testing.F) {
	for _, q := range []string{
		"labelSelector=app%3Dweb", "labelSelector=a+in+(b,c),!d,e!%3Df", "labelSelector=a+in+()", "labelSelector=(((",
		"fieldSelector=metadata.name%3Da",
		"fieldSelector=spec.nodeName!%3Dn,status.phase%3DPending", "fieldSelector=a%5C,b%3Dc%5C%3D",
		"resourceVersion=1&resourceVersionMatch=Exact",
		"resourceVersion=0&resourceVersionMatch=NotOlderThan", "limit=1", "limit=-1", "limit=1&continue=e30", "continue=x",
		"timeoutSeconds=-1",
		"sendInitialEvents=1", "watch=0", "watch", "a;b", "%zz", "labelSelector=a&labelSelector=b", "pretty=true",
		"includeObject=x",
	} {
		f.Add(q, false)
		f.Add(q, true)
	}
	h := fuzzed(f)
	f.Fuzz(func(t *testing.T, query string, table bool) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // so that a watch ends at once
		r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/pods", nil).WithContext(ctx)
		r.URL.RawQuery = query
		if table {
			r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
		}
		sane(t, h, r)
	})
}

// After any DELETE the pod is unchanged, terminating or deleted.
func FuzzDeleteOptions(f *testing.F) {
	for _, c := range [][2]string{
		{"", ""}, {"gracePeriodSeconds=0", ""}, {"gracePeriodSeconds=-1", ""}, {"gracePeriodSeconds=9223372036854775807", ""},
		{"propagationPolicy=Orphan", ""},
		{"orphanDependents=true&propagationPolicy=Foreground", ""}, {"", `{"gracePeriodSeconds":-9223372036854775808}`},
		{"", `{"kind":"Pod"}`}, {"", `null`},
		{"", `{"preconditions":{"uid":null,"resourceVersion":""}}`}, {"", `{"orphanDependents":false}`},
		{"", `{"dryRun":["All","All"]}`}, {"", `{"dryRun":[]}`},
		{"", `{"propagationPolicy":""}`}, {"", "propagationPolicy: Foreground\napiVersion: v1\n"}, {"", "k8s\x00"},
	} {
		f.Add(c[0], []byte(c[1]))
	}
	h := fuzzed(f)
	f.Fuzz(func(t *testing.T, query string, data []byte) {
		if v, err := url.ParseQuery(query); err == nil && !v.Has("dryRun") {
			query += "&dryRun=All"
		}
		r := httptest.NewRequest(http.MethodDelete, "/api/v1/namespaces/default/pods/a", bytes.NewReader(data))
		r.URL.RawQuery = query
		sane(t, h, r)
	})
}

// A path names one object, or nothing.
func FuzzPath(f *testing.F) {
	for _, p := range []string{"/api/v1/pods", "/api/v1/namespaces/default/pods/%2e%2e", "/api/v1/namespaces/a%2fb/pods",
		"/api//v1", "/apis/a/b/c/d/e/f/g/h",
		"/api/v1/namespaces/default/pods/a/%73tatus", "/api/v1/namespaces/default/status", "/openapi/v3/../..",
		"/healthz/%00"} {
		f.Add(p)
	}
	h := fuzzed(f)
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || strings.HasSuffix(u.Path, "/log") {
			t.Skip("no path that a client can send")
		}
		u.RawQuery = ""
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			r := httptest.NewRequest(method, "/", nil)
			r.URL = u
			sane(t, h, r)
		}
	})
}

// For any Accept header, the response has one of the types that it names, or is 406 as JSON.
func FuzzAccept(f *testing.F) {
	for _, accept := range []string{
		"application/json", codec.TypicalAccept, "*/*;q=0.1, text/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io",
		"application/json;q=0", ",;,", "a/b;q=\"", "application/json;stream=x",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
	} {
		f.Add(accept, "gzip, *;q=0", false)
		f.Add(accept, "gzip;q=x", true)
	}
	h := fuzzed(f)
	f.Fuzz(func(t *testing.T, accept, encoding string, watch bool) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/pods", nil).WithContext(ctx)
		if watch {
			r.URL.RawQuery = "watch=1"
		}
		r.Header.Set("Accept", accept)
		r.Header.Set("Accept-Encoding", encoding)
		sane(t, h, r)
	})
}
