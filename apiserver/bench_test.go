package apiserver

import (
	"bufio"
	"context"
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

// BenchmarkRequest measures a request without TLS and HTTP.
func BenchmarkRequest(b *testing.B) {
	const path = "/api/v1/namespaces/default/pods/a"
	for name, c := range map[string]struct{ method, path, body, typ, accept string }{
		"get":          {"GET", path, "", "", codec.TypeJSON},
		"get-protobuf": {"GET", path, "", "", codec.TypicalAccept},
		"patch-status": {"PATCH", path + "/status", `{"status":{"message":"%"}}`, "application/strategic-merge-patch+json", codec.TypeJSON},
		"merge-patch":  {"PATCH", path, `{"metadata":{"labels":{"n":"%"}}}`, "application/merge-patch+json", codec.TypeJSON},
		"create":       {"POST", "/api/v1/namespaces/default/pods?dryRun=All", `{"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, codec.TypeJSON, codec.TypeJSON},
	} {
		b.Run(name, func(b *testing.B) {
			h := fuzzed(b)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				body := strings.ReplaceAll(c.body, "%", strings.Repeat("x", n%40))
				r := httptest.NewRequestWithContext(context.Background(), c.method, c.path, strings.NewReader(body))
				r.Header.Set("Accept", c.accept)
				r.Header.Set("Content-Type", c.typ)
				h.ServeHTTP(&discard{http.Header{}}, r)
			}
		})
	}
}

// BenchmarkWatchers measures one write that a hundred watches over one HTTP/2 connection receive, including the
// clients.
func BenchmarkWatchers(b *testing.B) {
	const watchers = 100
	srv := httptest.NewUnstartedServer(fuzzed(b))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	heard := make(chan struct{}, watchers)
	for range watchers {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, srv.URL+"/api/v1/namespaces/default/pods?watch=1&resourceVersion=", nil)
		if err != nil {
			b.Fatal(err)
		}
		resp, err := srv.Client().Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		go func() {
			for in := bufio.NewScanner(resp.Body); in.Scan(); {
				heard <- struct{}{}
			}
		}()
	}
	wait := func() {
		for range watchers {
			<-heard
		}
	}
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
