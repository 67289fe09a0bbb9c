package machine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"monopod/testdata/harness"
)

// growing lists objects and watches of which a server may have many. The cost of each must not depend on their number.
var growing = []struct {
	name  string
	sizes []int
	flags []string
	path  string
	body  string // %d is the number of the object; empty: watch path
	conns int    // number of shared HTTP/2 connections over TLS; 0: a connection each, over the Unix socket
}{
	{name: "object", sizes: []int{100, 1_000, 10_000}, path: "/api/v1/namespaces/default/configmaps",
		body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m%d"},"data":{"a":"` + strings.Repeat("x", 1000) +
			`"}}`},
	{name: "pod-elsewhere", sizes: []int{100, 1_000, 10_000}, path: "/api/v1/namespaces/default/pods",
		body: podElsewhere},
	{name: "pod-here", sizes: []int{100, 500}, flags: []string{"--max-pods=1000"}, path: "/api/v1/namespaces/default/pods",
		body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p%d","labels":{"app":"web"}},` +
			`"spec":{"containers":[{"name":"c","image":"web"}]}}`},
	{name: "service", sizes: []int{100, 1_000, 10_000}, path: "/api/v1/namespaces/default/services",
		body: `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s%d"},"spec":{"selector":{"app":"s%[1]d"},` +
			`"ports":[{"port":80}]}}`},
	{name: "definition", sizes: []int{300}, path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		body: definition()},
	{name: "watch", sizes: []int{100, 1_000}, path: watched},
	{name: "watch-http2", sizes: []int{1_000, 5_000}, flags: []string{"--max-longrunning-requests-per-user=10000"},
		path: watched, conns: 10},
}

// podElsewhere is a pod on a node that does not exist.
const podElsewhere = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p%d","labels":{"app":"web"}},` +
	`"spec":{"nodeName":"elsewhere","containers":[{"name":"c","image":"web"}]}}`

// definition returns a definition with a schema of about 10 KB: 100 fields with descriptions.
func definition() string {
	var fields strings.Builder
	for i := range 100 {
		fmt.Fprintf(&fields,
			`,"field%02d":{"type":"string","maxLength":64,"description":"What the object does in one of its hundred respects."}`,
			i)
	}
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"k%ds.example.com"},
"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"k%[1]ds","singular":"k%[1]d","kind":"K%[1]d","listKind":"K%[1]dList"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object",
"properties":{` + fields.String()[1:] + `}}}}}}]}}`
}

// watched is the path of a watch as client-go's informers send it.
const watched = "/api/v1/namespaces/default/configmaps?allowWatchBookmarks=true&resourceVersion=0&timeoutSeconds=3600&watch=true"

// BenchmarkGrowth measures the cost of each additional object, pod, Service, definition and watch: live memory with
// stacks, and CPU until the server is at rest again. MONOPOD_GROWTH=100000 adds a size for objects. Each size runs
// once, regardless of -benchtime.
func BenchmarkGrowth(b *testing.B) {
	for _, g := range growing {
		if more, err := strconv.Atoi(os.Getenv("MONOPOD_GROWTH")); err == nil && g.name == "object" {
			g.sizes = append(g.sizes, more)
		}
		for _, n := range g.sizes {
			b.Run(fmt.Sprintf("%s/n=%d", g.name, n), func(b *testing.B) {
				harness.Once(b, func(b *testing.B) {
					s, _ := launch(b, append([]string{"--runtime=fake", "--max-requests-inflight=4000"}, g.flags...)...)
					memory, cpu := s.Cost(b)
					ctx, cancel := context.WithCancel(b.Context())
					defer cancel()
					clients, base := []*http.Client{s.HTTP()}, "http://x"
					if g.conns > 0 {
						clients, base = s.Clients(b, g.conns)
					}
					if err := grow(ctx, clients, base+g.path, g.body, n); err != nil {
						b.Fatal(err)
					}
					moreMemory, moreCPU := s.Cost(b)
					b.ReportMetric((moreMemory-memory)/1024/float64(n), "KB-each")
					b.ReportMetric((moreCPU-cpu)*1e6/float64(n), "µs-CPU-each")
				})
			})
		}
	}
}

// grow creates n objects or opens n watches, eight at a time.
func grow(ctx context.Context, clients []*http.Client, url, body string, n int) error {
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	var group errgroup.Group
	group.SetLimit(8)
	for i := range n {
		group.Go(func() error {
			in := ""
			if body != "" {
				in = fmt.Sprintf(body, i)
			}
			req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(in))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := clients[i%len(clients)].Do(req)
			if err != nil {
				return err
			}
			if body == "" && resp.StatusCode == http.StatusOK {
				return nil // the watch ends with ctx
			}
			text, err := io.ReadAll(resp.Body)
			if resp.StatusCode >= http.StatusBadRequest {
				err = errors.Join(err, fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text)))
			}
			return errors.Join(err, resp.Body.Close())
		})
	}
	return group.Wait()
}
