package apiserver

import (
	"bufio"
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/codec"
)

// discard is a response that is discarded.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// hotRequest is a request of a kind that a busy server answers thousands of times a second; in its body, % stands
// for a text that differs each time.
type hotRequest struct {
	method, path, body, typ, accept string
	ceilings
}

// ceilings are a twentieth above what was measured; another version of Go may want new ones.
type ceilings struct {
	allocations  float64 // TestAllocations, with the race detector
	instructions float64 // TestInstructions, without it, on amd64
}

func hotRequests() map[string]hotRequest {
	const pods, path = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/pods/a"
	const pod = `{"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	return map[string]hotRequest{
		"get":              {"GET", path, "", "", codec.TypeJSON, ceilings{69, 60_000}},
		"get-protobuf":     {"GET", path, "", "", codec.TypicalAccept, ceilings{61, 61_000}},
		"list":             {"GET", pods, "", "", codec.TypeJSON, ceilings{83, 75_500}},
		"list-label":       {"GET", pods + "?labelSelector=a%3Db", "", "", codec.TypeJSON, ceilings{127, 105_000}},
		"list-page":        {"GET", "/api/v1/namespaces?limit=2", "", "", codec.TypeJSON, ceilings{110, 97_000}},
		"discovery":        {"GET", "/apis", "", "", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", ceilings{250, 323_000}},
		"apply":            {"PATCH", path + "?fieldManager=m&force=true", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"n":"%"}}}`, "application/apply-patch+yaml", codec.TypeJSON, ceilings{4750, 4_880_000}},
		"patch-status":     {"PATCH", path + "/status", `{"status":{"message":"%"}}`, "application/strategic-merge-patch+json", codec.TypeJSON, ceilings{370, 419_000}},
		"merge-patch":      {"PATCH", path, `{"metadata":{"labels":{"n":"%"}}}`, "application/merge-patch+json", codec.TypeJSON, ceilings{745, 1_010_000}},
		"create":           {"POST", pods + "?dryRun=All", pod, codec.TypeJSON, codec.TypeJSON, ceilings{375, 365_000}},
		"create-configmap": {"POST", "/api/v1/namespaces/default/configmaps?dryRun=All", `{"metadata":{"name":"b"},"data":{"a":"b"}}`, codec.TypeJSON, codec.TypeJSON, ceilings{170, 158_000}},
		"delete":           {"DELETE", path + "?dryRun=All&gracePeriodSeconds=0", "", "", codec.TypeJSON, ceilings{107, 88_000}},
		"not-found":        {"GET", path + "z", "", "", codec.TypeJSON, ceilings{86, 78_500}},
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

// hotPath is a request, or something else that a busy server does thousands of times a second.
type hotPath struct {
	start func(testing.TB) (do func(n int)) // do does it the n-th time
	ceilings
}

func hotPaths() map[string]hotPath {
	all := map[string]hotPath{
		"agent-status": {agentStatus, ceilings{132, 165_000}},
		"watch-events": {watchEvents, ceilings{800, 1_500_000}},
	}
	for name, q := range hotRequests() {
		all[name] = hotPath{func(tb testing.TB) func(int) {
			h := fuzzed(tb)
			return func(n int) { q.send(h, n) }
		}, q.ceilings}
	}
	return all
}

// BenchmarkHot measures the paths of TestAllocations, without TLS and HTTP.
func BenchmarkHot(b *testing.B) {
	for name, p := range hotPaths() {
		b.Run(name, func(b *testing.B) {
			do, n := p.start(b), 0
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

// watchEvents patches a pod's status, which a hundred watches receive.
func watchEvents(tb testing.TB) func(n int) {
	h := fuzzed(tb)
	events := make(chan struct{}, watchers)
	var over sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(func() { cancel(); over.Wait() })
	for range watchers {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/namespaces/default/pods?watch=1", nil)
		over.Go(func() { h.ServeHTTP(&watching{discard{http.Header{}}, events}, r) })
	}
	wait := func() {
		for range watchers {
			<-events
		}
	}
	wait() // for the pod that is there
	patch := hotRequests()["patch-status"]
	return func(n int) {
		patch.send(h, n)
		wait()
	}
}

// watching is the response of a watch, each of whose writes is an event.
type watching struct {
	discard
	events chan<- struct{}
}

func (w *watching) Write(b []byte) (int, error) {
	w.events <- struct{}{}
	return len(b), nil
}

// FlushError implements what http.ResponseController needs.
func (w *watching) FlushError() error { return nil }

// TestAllocations keeps what is done most from becoming more expensive unnoticed: what it allocates is the same
// on every machine, unlike its time.
func TestAllocations(t *testing.T) {
	for name, p := range hotPaths() {
		t.Run(name, func(t *testing.T) {
			got := math.Inf(1)
			// A collection in between empties the pools, and 3 % of random UIDs look like a long exponent, which is then checked
			// with care: both allocate more.
			for range 5 {
				do, n := p.start(t), 0
				got = min(got, testing.AllocsPerRun(100, func() {
					n++
					do(n)
				}))
				if got <= p.allocations {
					return
				}
			}
			t.Errorf("%.0f allocations, at most %.0f expected: find what allocates more, with go test -bench Hot/%s -memprofile", got, p.allocations, name)
		})
	}
}

// watchers is the number of watches that watched begins.
const watchers = 100

// watched begins watches of the objects at a path. The function that it returns waits until each has got one event more.
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
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPatch, srv.URL+"/api/v1/namespaces/default/pods/a", body)
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
