package apiserver

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/codec"
	"monopod/apiserver/kit/client"
)

// discard is a ResponseWriter that discards the response.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// hotRequest is a request of a kind that a busy server answers thousands of times a second; each request replaces % in
// its body with a different text.
type hotRequest struct {
	method, path, body, typ, accept string
}

func hotRequests() map[string]hotRequest {
	const pods, path = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/pods/a"
	const pod = `{"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	return map[string]hotRequest{
		"get":          {"GET", path, "", "", codec.TypeJSON},
		"get-protobuf": {"GET", path, "", "", codec.TypicalAccept},
		"list":         {"GET", pods, "", "", codec.TypeJSON},
		"list-label":   {"GET", pods + "?labelSelector=a%3Db", "", "", codec.TypeJSON},
		"list-page":    {"GET", "/api/v1/namespaces?limit=2", "", "", codec.TypeJSON},
		"discovery": {"GET", "/apis", "", "",
			"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"},
		"apply": {"PATCH", path + "?fieldManager=m&force=true",
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"n":"%"}}}`, "application/apply-patch+yaml",
			codec.TypeJSON},
		"patch-status": {"PATCH", path + "/status", `{"status":{"message":"%"}}`,
			"application/strategic-merge-patch+json", codec.TypeJSON},
		"merge-patch": {"PATCH", path, `{"metadata":{"labels":{"n":"%"}}}`, "application/merge-patch+json", codec.TypeJSON},
		"create":      {"POST", pods + "?dryRun=All", pod, codec.TypeJSON, codec.TypeJSON},
		"create-configmap": {"POST", "/api/v1/namespaces/default/configmaps?dryRun=All",
			`{"metadata":{"name":"b"},"data":{"a":"b"}}`, codec.TypeJSON, codec.TypeJSON},
		"delete":    {"DELETE", path + "?dryRun=All&gracePeriodSeconds=0", "", "", codec.TypeJSON},
		"not-found": {"GET", path + "z", "", "", codec.TypeJSON},
	}
}

// send sends the n-th of such requests.
func (q hotRequest) send(h http.Handler, n int) {
	body := strings.ReplaceAll(q.body, "%", strings.Repeat("x", n%40))
	r := httptest.NewRequestWithContext(context.Background(), q.method, q.path, strings.NewReader(body))
	r.Header.Set("Accept", q.accept)
	r.Header.Set("Content-Type", q.typ)
	h.ServeHTTP(&discard{http.Header{}}, r)
}

// hotPaths returns the operations that a busy server runs thousands of times a second; do runs the n-th of them.
func hotPaths() map[string]func(testing.TB) (do func(n int)) {
	all := map[string]func(testing.TB) func(int){"agent-status": agentStatus}
	for name, q := range hotRequests() {
		all[name] = func(tb testing.TB) func(int) {
			h := fuzzed(tb)
			return func(n int) { q.send(h, n) }
		}
	}
	return all
}

// BenchmarkHot measures hotPaths without TLS and HTTP.
func BenchmarkHot(b *testing.B) {
	for name, start := range hotPaths() {
		b.Run(name, func(b *testing.B) {
			do, n := start(b), 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				do(n)
			}
		})
	}
}

// agentStatus writes a pod's status as the agent does, in process.
func agentStatus(tb testing.TB) func(n int) {
	reg, _ := fuzzedRegistry(tb)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}
	return func(n int) {
		if _, err := client.Update(tb.Context(), reg, pod, "status", func(cur *corev1.Pod) error {
			cur.Status.Phase, cur.Status.Message = corev1.PodRunning, strings.Repeat("x", n%40)
			return nil
		}); err != nil {
			tb.Error(err)
		}
	}
}

// watchers is the number of watches that watched begins.
const watchers = 100

// watched begins watches of the objects at a path. The returned function waits until each watch has received one more
// event.
func watched(b *testing.B, srv *httptest.Server, path string) (wait func()) {
	heard := make(chan struct{}, watchers)
	for range watchers {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, srv.URL+path+"?watch=1&resourceVersion=", nil)
		if err != nil {
			b.Fatal(err)
		}
		resp, err := srv.Client().Do(req)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { resp.Body.Close() })
		go func() {
			for in := bufio.NewScanner(resp.Body); in.Scan(); {
				heard <- struct{}{}
			}
		}()
	}
	return func() {
		for range watchers {
			<-heard
		}
	}
}

// BenchmarkWatchers measures one write that a hundred watches over one HTTP/2 connection receive, including the
// clients.
func BenchmarkWatchers(b *testing.B) {
	srv := httptest.NewUnstartedServer(fuzzed(b))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	b.Cleanup(srv.Close)
	wait := watched(b, srv, "/api/v1/namespaces/default/pods")
	wait() // for the existing pod
	b.ResetTimer()
	for n := range b.N {
		body := strings.NewReader(`{"metadata":{"labels":{"n":"` + strconv.Itoa(n) + `"}}}`)
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPatch, srv.URL+"/api/v1/namespaces/default/pods/a",
			body)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/merge-patch+json")
		resp, err := srv.Client().Do(req)
		if err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
		wait()
	}
}
