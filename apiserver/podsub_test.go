package apiserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

// recordingNode is a node that records its calls.
type recordingNode struct{}

func (recordingNode) Logs(_ context.Context, _ *corev1.Pod, opts *corev1.PodLogOptions, w io.Writer) error {
	stream := "none"
	if opts.Stream != nil {
		stream = *opts.Stream
	}
	_, err := fmt.Fprintf(w, "%s follow=%t stream=%s", opts.Container, opts.Follow, stream)
	return err
}

func (recordingNode) Exec(context.Context, *corev1.Pod, *corev1.PodExecOptions) (*url.URL, error) {
	return &url.URL{}, nil
}

func (recordingNode) Attach(context.Context, *corev1.Pod, *corev1.PodAttachOptions) (*url.URL, error) {
	return &url.URL{}, nil
}

func (recordingNode) PortForward(context.Context, *corev1.Pod, *corev1.PodPortForwardOptions) (*url.URL, error) {
	return &url.URL{}, nil
}

// withPod is a server with one pod "p" that is not scheduled, with containers a and b and an init container i.
func withPod(t *testing.T) API {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i", Image: "x"}},
		Containers:     []corev1.Container{{Name: "a", Image: "x"}, {Name: "b", Image: "x"}}}}
	if _, err := reg.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	srv, err := apiserver.New(t.Context(), apiserver.Config{
		Registry: reg, Authenticator: auth.Token(token, auth.Admin),
		Node: func(string) (client.Node, error) { return recordingNode{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(srv.Handler())
	t.Cleanup(h.Close)
	return API{t, h.URL, h.Client(), reg}
}

func TestPodStreams(t *testing.T) {
	t.Parallel()
	a := withPod(t)
	const pod = "/api/v1/namespaces/default/pods/p"
	if resp := a.do("GET", pod+"/log?container=a", ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("the log of a pod without a node: %d", resp.StatusCode)
	}
	if code, _ := a.read("POST", pod+"/binding", `{"target":{"name":"n1"}}`); code != 201 {
		t.Fatalf("binding: %d", code)
	}
	for name, c := range map[string]struct {
		method, path string
		code         int
		says         string
	}{
		"log": {"GET", "/log?container=a&follow=true&insecureSkipTLSVerifyBackend=true", 200,
			"a follow=true stream=none"},
		"log of stdout": {"GET", "/log?container=i&stream=Stdout", 200, "i follow=false stream=Stdout"},
		"log, no container": {"GET", "/log", 400,
			"a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]"},
		"log, unknown container": {"GET", "/log?container=c", 400, "container c is not valid for pod p"},
		"log, tail": {"GET", "/log?container=a&tailLines=-1", 422,
			`PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0`},
		"log, invalid number": {"GET", "/log?container=a&tailLines=x", 400, "tailLines"},
		"log, limit": {"GET", "/log?container=a&limitBytes=0", 422,
			"limitBytes: Invalid value: 0: must be greater than 0"},
		"log, since": {"GET", "/log?container=a&sinceSeconds=0", 422,
			"sinceSeconds: Invalid value: 0: must be greater than 0"},
		"log, since twice": {"GET", "/log?container=a&sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", 422,
			"at most one of `sinceTime` or `sinceSeconds` may be specified"},
		"log, invalid time": {"GET", "/log?container=a&sinceTime=yesterday", 400, "sinceTime"},
		"log, stream": {"GET", "/log?container=a&stream=stdout", 422,
			`stream: Unsupported value: \"stdout\": supported values: \"All\", \"Stderr\", \"Stdout\"`},
		"log, stream and tail":  {"GET", "/log?container=a&stream=Stderr&tailLines=1", 422, "mutually exclusive for now"},
		"exec, no container":    {"POST", "/exec?command=x", 400, "choose one of: [a b] or one of the init containers: [i]"},
		"exec, no command":      {"POST", "/exec?container=a", 400, "at least 1 command"},
		"exec, plain":           {"POST", "/exec?container=a&command=x", 400, `"message":"Upgrade request required"`},
		"forward, port":         {"POST", "/portforward?ports=80,70000", 400, `ports: Invalid value: \"70000\"`},
		"forward, port 0":       {"POST", "/portforward?ports=0", 400, "must be a number from 1 to 65535"},
		"attach, plain":         {"GET", "/attach?container=a", 400, `"message":"Upgrade request required"`},
		"forward, plain":        {"POST", "/portforward", 400, `"message":"Upgrade request required"`},
		"forward, invalid port": {"POST", "/portforward?ports=x", 400, "ports: Invalid value"},
	} {
		resp := a.do(c.method, pod+c.path, "")
		if data := readBody(t, resp); resp.StatusCode != c.code || !strings.Contains(data, c.says) {
			t.Errorf("%s: %d %s, want %d %s", name, resp.StatusCode, data, c.code, c.says)
		}
	}
}

func TestPodParts(t *testing.T) {
	t.Parallel()
	a := withPod(t)
	const ns = "/api/v1/namespaces/default"
	const merge = "Content-Type: application/merge-patch+json"
	const strategic = "Content-Type: application/strategic-merge-patch+json"
	for _, c := range []struct {
		name, method, path, body, header string
		code                             int
		says                             string
	}{
		{"debug", "PATCH", ns + "/pods/p/ephemeralcontainers",
			`{"spec":{"ephemeralContainers":[{"name":"d","image":"y","stdin":true,"tty":true,"targetContainerName":"a"}]}}`,
			strategic, 200, `"name":"d"`},
		{"debug again", "PATCH", ns + "/pods/p/ephemeralcontainers",
			`{"spec":{"ephemeralContainers":[{"name":"e","image":"y"}]}}`, strategic, 200, `"name":"e"`},
		{"the added one", "GET", ns + "/pods/p/ephemeralcontainers", "", asJSON, 200, `"targetContainerName":"a"`},
		{"remove them", "PATCH", ns + "/pods/p/ephemeralcontainers", `{"spec":{"ephemeralContainers":null}}`, merge, 422,
			`existing ephemeral containers \"d\" may not be removed`},
		{"remove them by the pod", "PATCH", ns + "/pods/p", `{"spec":{"ephemeralContainers":null}}`, merge, 422,
			"pod updates may not change fields other than"},
		{"resize", "PATCH", ns + "/pods/p/resize",
			`{"spec":{"containers":[{"name":"b","resources":{"requests":{"cpu":"1"}}}]}}`, strategic, 422,
			"Pod QOS Class may not change as a result of resizing"},
		{"resize of a missing pod", "GET", ns + "/pods/q/resize", "", asJSON, 404, "NotFound"},
		{"eviction, name", "POST", ns + "/pods/p/eviction",
			`{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"q"}}`, asJSON, 400, "does not match"},
		{"eviction, kind", "POST", ns + "/pods/p/eviction", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}`,
			asJSON, 400, "Eviction"},
		{"eviction, dry run", "POST", ns + "/pods/p/eviction?dryRun=All",
			`{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"p"}}`, asJSON, 201, "Success"},
		{"eviction, GET", "GET", ns + "/pods/p/eviction", "", asJSON, 405, "MethodNotAllowed"},
		{"binding, old, no name", "POST", ns + "/bindings", `{"target":{"name":"n1"}}`, asJSON, 422,
			"metadata.name: Required value"},
		{"binding, old", "POST", ns + "/bindings", `{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n1"}}`, asJSON,
			201, "Success"},
		{"binding, again", "POST", ns + "/bindings", `{"metadata":{"name":"p"},"target":{"name":"n2"}}`, asJSON, 409,
			`already assigned to node \"n1\"`},
		{"eviction", "POST", ns + "/pods/p/eviction", `{"metadata":{"name":"p"},"deleteOptions":{"gracePeriodSeconds":0}}`,
			asJSON, 201, "Success"},
		{"evicted pod", "GET", ns + "/pods/p", "", asJSON, 404, "NotFound"},
	} {
		resp := a.do(c.method, c.path, c.body, c.header)
		if data := readBody(t, resp); resp.StatusCode != c.code || !strings.Contains(data, c.says) {
			t.Errorf("%s: %d %s, want %d %s", c.name, resp.StatusCode, data, c.code, c.says)
		}
	}
}
