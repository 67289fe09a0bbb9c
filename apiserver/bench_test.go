package apiserver

import (
	"bufio"
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

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
	// allocations is the ceiling of TestAllocations, a tenth above what was measured with the race detector.
	allocations float64
}

func hotRequests() map[string]hotRequest {
	const pods, path = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/pods/a"
	const pod = `{"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	return map[string]hotRequest{
		"get":              {"GET", path, "", "", codec.TypeJSON, 73},
		"get-protobuf":     {"GET", path, "", "", codec.TypicalAccept, 74},
		"list":             {"GET", pods, "", "", codec.TypeJSON, 104},
		"list-label":       {"GET", pods + "?labelSelector=a%3Db", "", "", codec.TypeJSON, 142},
		"patch-status":     {"PATCH", path + "/status", `{"status":{"message":"%"}}`, "application/strategic-merge-patch+json", codec.TypeJSON, 380},
		"merge-patch":      {"PATCH", path, `{"metadata":{"labels":{"n":"%"}}}`, "application/merge-patch+json", codec.TypeJSON, 780},
		"create":           {"POST", pods + "?dryRun=All", pod, codec.TypeJSON, codec.TypeJSON, 402},
		"create-configmap": {"POST", "/api/v1/namespaces/default/configmaps?dryRun=All", `{"metadata":{"name":"b"},"data":{"a":"b"}}`, codec.TypeJSON, codec.TypeJSON, 173},
		"delete":           {"DELETE", path + "?dryRun=All&gracePeriodSeconds=0", "", "", codec.TypeJSON, 110},
		"not-found":        {"GET", path + "z", "", "", codec.TypeJSON, 90},
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

// BenchmarkRequest measures a request without TLS and HTTP.
func BenchmarkRequest(b *testing.B) {
	for name, q := range hotRequests() {
		b.Run(name, func(b *testing.B) {
			h := fuzzed(b)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				q.send(h, n)
			}
		})
	}
}

// TestAllocations keeps the hottest requests from becoming more expensive unnoticed: what a request allocates is the same
// on every machine, unlike its time.
func TestAllocations(t *testing.T) {
	for name, q := range hotRequests() {
		t.Run(name, func(t *testing.T) {
			got := math.Inf(1)
			// A collection in between empties the pools, and 3 % of random UIDs look like a long exponent, which is then checked
			// with care: both allocate more.
			for range 5 {
				h, n := fuzzed(t), 0
				got = min(got, testing.AllocsPerRun(200, func() {
					n++
					q.send(h, n)
				}))
				if got <= q.allocations {
					return
				}
			}
			t.Errorf("%.0f allocations, at most %.0f expected: find what allocates more, with go test -bench Request/%s -memprofile", got, q.allocations, name)
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
