package apiserver_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"monopod/apiserver"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
	"monopod/testdata/harness"
)

// signedIn is the subprotocol that contains the token.
var signedIn = "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))

// endedNode is a node whose containers have ended before a client attaches.
type endedNode struct {
	recordingNode
	streams streaming.Server
}

func (n *endedNode) Logs(_ context.Context, _ *corev1.Pod, opts *corev1.PodLogOptions, w io.Writer) error {
	if opts.Stream == nil {
		_, err := fmt.Fprint(w, "the log")
		return err
	}
	_, err := fmt.Fprintf(w, "said on %s", *opts.Stream)
	return err
}

func (n *endedNode) Attach(_ context.Context, _ *corev1.Pod, opts *corev1.PodAttachOptions) (*url.URL, error) {
	resp, err := n.streams.GetAttach(
		&cri.AttachRequest{ContainerId: "c", Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

type silent struct{ streaming.Runtime }

func (silent) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool,
	<-chan remotecommand.TerminalSize) error {
	return nil
}

// attaching is a server with the pods "young" and "old" on an endedNode.
func attaching(t *testing.T) API {
	t.Helper()
	node := &endedNode{}
	streams := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { node.streams.ServeHTTP(w, r) }))
	t.Cleanup(streams.Close)
	cfg := streaming.DefaultConfig
	cfg.BaseURL, _ = url.Parse(streams.URL + "/")
	var err error
	if node.streams, err = streaming.NewServer(cfg, silent{}); err != nil {
		t.Fatal(err)
	}
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"young": time.Second, "old": time.Minute} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
		if _, err := reg.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Update(t.Context(), reg, pod, "status", func(p *corev1.Pod) error {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-age))}}}}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	srv, err := apiserver.New(t.Context(), apiserver.Config{
		Registry: reg, Authenticator: auth.Token(token, auth.Admin), Node: func(string) (client.Node, error) {
			return node,
				nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	handler := srv.Handler()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch torn := r.URL.Query()["torn"]; {
		case slices.Contains(torn, "flush"):
			w = tornFlush{w}
		case torn != nil:
			w = tornRead{w}
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	return API{t, h.URL, h.Client(), reg}
}

// tornFlush panics when a response is flushed.
type tornFlush struct{ http.ResponseWriter }

func (tornFlush) Flush() { panic("torn") }

// tornRead returns a connection that panics when its client is read.
type tornRead struct{ http.ResponseWriter }

func (w tornRead) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w tornRead) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, _, err := w.ResponseWriter.(http.Hijacker).Hijack()
	bad := tornConn{conn}
	return bad, bufio.NewReadWriter(bufio.NewReader(bad), bufio.NewWriter(bad)), err
}

type tornConn struct{ net.Conn }

func (c tornConn) Read([]byte) (int, error) { panic("torn") }

// A panic in a goroutine of a stream is counted as a panic of its request, and ends only this stream.
func TestPanicOfAStreamIsContained(t *testing.T) {
	t.Parallel()
	a := attaching(t)
	for i, path := range []string{"/api/v1/namespaces/default/pods/old/log?torn", "/api/v1/pods?watch=true&torn"} {
		ws := a.socket(path, signedIn, "binary.k8s.io")
		_, _ = io.ReadAll(ws)
		want := fmt.Sprintf("monopod_panics_total{part=\"request\"} %d\n", i+1)
		if !harness.Eventually(harness.Bound, func() bool {
			return strings.Contains(readBody(t, a.do("GET", "/metrics", "")),
				want)
		}) {
			t.Errorf("%s: no %q", path, want)
		}
	}
}

// A panic in a watch, which runs after the handlers of its request have returned, is counted as a panic of the request.
// It ends the watch, which then no longer counts towards the limits.
func TestPanicOfAWatchIsContained(t *testing.T) {
	t.Parallel()
	a := attaching(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+"/api/v1/pods?watch=true&torn=flush", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := a.hc.Do(req)
	if err == nil { // its header was sent
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("the response was not truncated")
	}
	metrics := readBody(t, a.do("GET", "/metrics", ""))
	for _, want := range []string{`monopod_panics_total{part="request"} 1`,
		`apiserver_longrunning_requests{resource="pods",subresource="",verb="WATCH"} 0`} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

// An attach to an ended container replays its output if the container started shortly before.
func TestAttachToEndedContainer(t *testing.T) {
	t.Parallel()
	a := attaching(t)
	for name, want := range map[string]string{"young": "said on Stdout, said on Stderr", "old": ", "} {
		ws := a.socket("/api/v1/namespaces/default/pods/"+name+"/attach?stdout=true&stderr=true", signedIn,
			"v4.channel.k8s.io")
		var out [256]string
		for {
			var data []byte
			if err := websocket.Message.Receive(ws, &data); err != nil {
				break
			}
			out[data[0]] += string(data[1:])
		}
		if got := out[1] + ", " + out[2]; got != want || !strings.Contains(out[3], "Success") {
			t.Errorf("%s: %q, ended %q", name, got, out[3])
		}
	}
}

func TestLogOverAWebSocket(t *testing.T) {
	t.Parallel()
	a := attaching(t)
	for protocol, want := range map[string]string{"binary.k8s.io": "the log", "base64.binary.k8s.io": "dGhlIGxvZw=="} {
		data, err := io.ReadAll(a.socket("/api/v1/namespaces/default/pods/old/log", signedIn, protocol))
		if string(data) != want || err != nil {
			t.Errorf("%s: %q, %v", protocol, data, err)
		}
	}
	resp := a.do("GET", "/api/v1/namespaces/default/pods/old/log", "", upgrading, "Upgrade: websocket",
		"Sec-WebSocket-Protocol: other",
		"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==")
	if text := readBody(t, resp); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text,
		"base64.binary.k8s.io") {
		t.Errorf("an unknown subprotocol: %d %s", resp.StatusCode, text)
	}
}
