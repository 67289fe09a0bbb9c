package apiserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver"
	"monopod/apiserver/auth"
	"monopod/apiserver/flow"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

// kubelet is an agent that echoes its requests.
type kubelet struct{}

func (kubelet) Logs(context.Context, *corev1.Pod, *corev1.PodLogOptions, io.Writer) error { return nil }
func (kubelet) Exec(context.Context, *corev1.Pod, *corev1.PodExecOptions) (*url.URL, error) {
	return nil, nil
}
func (kubelet) Attach(context.Context, *corev1.Pod, *corev1.PodAttachOptions) (*url.URL, error) {
	return nil, nil
}
func (kubelet) PortForward(context.Context, *corev1.Pod, *corev1.PodPortForwardOptions) (*url.URL, error) {
	return nil, nil
}
func (kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s auth=%q", r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"))
}

// grants allows each user what its name contains: "get metrics,create proxy".
type grants struct{}

func (grants) Authorize(_ context.Context, a auth.Attributes) (bool, string, error) {
	return a.Group == "" && a.Resource == "nodes" && strings.Contains(a.Name, "n1") &&
		slices.Contains(strings.Split(a.User.Name, ","), a.Verb+" "+a.Subresource), "", nil
}

// Streams over the kubelet's port have the same limit as streams over the API.
func TestKubeletStreamsAreBounded(t *testing.T) {
	t.Parallel()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	srv, err := apiserver.New(t.Context(), apiserver.Config{
		Registry: registry.New(s, resources, registry.Config{}), Authenticator: byToken(),
		Limits: flow.Limits{MaxLongRunningPerUser: 1},
		Node:   func(string) (client.Node, error) { return waiting{end: t.Context()}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(srv.Kubelet("n1"))
	t.Cleanup(h.Close)
	a := API{t, h.URL, h.Client(), nil}
	for i, want := range []int{200, 429} {
		resp := a.do("GET", "/containerLogs/default/p/c?follow=true", "", "Authorization: Bearer someone")
		if resp.StatusCode != want || (want == 429) != (resp.Header.Get("Retry-After") == "1") {
			t.Errorf("request %d: %s", i, resp.Status)
		}
	}
}

// waiting starts a response, and then waits until its client disconnects.
type waiting struct {
	kubelet
	end context.Context
}

func (n waiting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	http.NewResponseController(w).Flush()
	select {
	case <-r.Context().Done():
	case <-n.end.Done():
	}
}

// kubeletAPI is a server with node n1, whose users have the names of their tokens.
func kubeletAPI(t *testing.T) (srv *apiserver.Server, a API) {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := reg.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
	srv, err := apiserver.New(t.Context(), apiserver.Config{
		Registry: reg, Authorizer: grants{},
		Authenticator: auth.Func(func(r *http.Request) (auth.User, bool) {
			name := auth.Bearer(r)
			return auth.User{Name: name, Groups: []string{auth.Authenticated}}, name != ""
		}),
		Node: func(string) (client.Node, error) { return kubelet{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(srv.Handler())
	t.Cleanup(h.Close)
	return srv, API{t, h.URL, h.Client(), reg}
}

func TestKubeletPort(t *testing.T) {
	t.Parallel()
	srv, _ := kubeletAPI(t)
	for _, c := range []struct {
		user, method, path string
		code               int
		says               string
	}{
		{"", "GET", "/metrics", 401, "Unauthorized"},
		{"", "GET", "/healthz", 401, "Unauthorized"},
		{"get metrics", "GET", "/metrics", 200, `GET /metrics auth=""`},
		{"get metrics", "GET", "/metrics/cadvisor?x=1", 200, "GET /metrics/cadvisor?x=1"},
		{"get metrics", "GET", "/stats/summary", 403, `cannot get resource "nodes/stats"`},
		{"get metrics", "GET", "/metricsx", 403, `nodes/proxy`},
		{"get stats", "GET", "/stats/summary", 200, "GET"},
		{"get proxy", "GET", "/stats/summary", 403, "nodes/stats"}, // as upstream: not covered by proxy
		{"get proxy", "GET", "/metrics", 403, "nodes/metrics"},
		{"get log", "GET", "/logs/", 200, "GET"},
		{"get proxy", "GET", "/logs/", 403, "nodes/log"},
		{"get pods", "GET", "/pods", 200, "GET"},
		{"get proxy", "GET", "/pods", 200, "GET"},
		{"get pods", "GET", "/runningpods/", 200, "GET"},
		{"get healthz", "GET", "/healthz/syncloop", 200, "GET"},
		{"get proxy", "GET", "/healthz", 200, "GET"},
		{"get configz", "GET", "/configz", 200, "GET"},
		{"get pods", "GET", "/configz", 403, "nodes/configz"},
		{"get proxy", "GET", "/containerLogs/default/p/c", 200, "GET"},
		{"get proxy", "GET", "/debug/pprof/", 200, "GET"},
		{"create proxy", "POST", "/run/default/p/c?cmd=ls", 200, "POST"},
		{"create proxy", "POST", "/exec/default/p/c?command=ls", 200, "POST"},
		{"create proxy", "GET", "/exec/default/p/c?command=ls", 200, "GET"},
		{"get proxy", "GET", "/exec/default/p/c?command=ls", 403, `cannot create resource "nodes/proxy"`},
		{"get proxy", "GET", "/attach/default/p/c", 403, "nodes/proxy"},
		{"get proxy", "GET", "/portForward/default/p", 403, "nodes/proxy"},
		{"get proxy", "POST", "/run/default/p/c", 403, "nodes/proxy"},
		{"create checkpoint", "POST", "/checkpoint/default/p/c", 200, "POST"},
		{"create proxy,get proxy", "GET", "/monopod/terminal", 403, "only admins may open a terminal on a node"},
		{auth.KubeletClient.Name, "GET", "/exec/default/p/c?command=ls", 200, "GET"}, // another server
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		if c.user != "" {
			r.Header.Set("Authorization", "Bearer "+c.user)
		}
		w := httptest.NewRecorder()
		srv.Kubelet("n1").ServeHTTP(w, r)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%q: %s %s: got %d %s, want %d %s", c.user, c.method, c.path, w.Code, w.Body, c.code, c.says)
		}
	}
}

// Through the API nodes/proxy is sufficient for all paths, but a stream needs create, also with the GET of a
// WebSocket.
func TestNodeProxy(t *testing.T) {
	t.Parallel()
	_, a := kubeletAPI(t)
	for _, c := range []struct {
		user, method, path string
		code               int
		says               string
	}{
		{"get proxy", "GET", "n1/proxy/metrics", 200, `GET /metrics auth=""`},
		{"get proxy", "GET", "n1:10250/proxy/stats/summary?only_cpu_and_memory=true", 200,
			"GET /stats/summary?only_cpu_and_memory=true "},
		{"get proxy", "GET", "https:n1:10250/proxy/logs/a%2Fb", 200, "GET /logs/a%2Fb "},
		{"get proxy", "GET", "n1:9100/proxy/metrics", 503, "no preferred addresses found"},
		{"get metrics", "GET", "n1/proxy/metrics", 403, `cannot get resource \"nodes/proxy\"`},
		{"get proxy", "GET", "n1/proxy/exec/default/p/c", 403, `cannot create resource \"nodes/proxy\"`},
		{"get proxy", "GET", "n1/proxy/%65xec/default/p/c", 403, `cannot create resource \"nodes/proxy\"`},
		{"get proxy", "GET", "n1/proxy/..%2fexec/default/p/c", 200, "GET /..%2fexec/"}, // the agent has no such path
		{"get proxy", "POST", "n1/proxy/run/default/p/c", 403, "nodes/proxy"},
		{"create proxy", "POST", "n1/proxy/run/default/p/c?cmd=ls", 200, "POST /run/default/p/c?cmd=ls "},
		{"create proxy,get proxy", "GET", "n1/proxy/exec/default/p/c", 200, "GET /exec/default/p/c "},
		{"get proxy", "GET", "n1/proxy/monopod/terminal", 403, `cannot create resource \"nodes/proxy\"`},
		{"create proxy,get proxy", "GET", "n1/proxy/monopod/terminal", 403, "only admins may open a terminal on a node"},
		{"create proxy,get proxy", "GET", "n1/proxy/monopod/./%74erminal", 403, "only admins may open a terminal on a node"},
		{auth.KubeletClient.Name, "GET", "n1/proxy/exec/default/p/c", 403, "nodes/proxy"},
		{auth.KubeletClient.Name, "GET", "n1/proxy/pods", 403, "nodes/proxy"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, a.url+"/api/v1/nodes/"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.user)
		resp, err := a.hc.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body := readBody(t, resp)
		resp.Body.Close()
		if resp.StatusCode != c.code || !strings.Contains(body, c.says) {
			t.Errorf("%q: %s %s: got %d %s, want %d %s", c.user, c.method, c.path, resp.StatusCode, body, c.code, c.says)
		}
	}
}
