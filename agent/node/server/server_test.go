package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/websocket"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/node/server"
	"monopod/apiserver/kit/client"
)

// node is a node with one pod. Its runtime echoes streams in upper case.
type node struct {
	*testing.T
	runtime *url.URL
	sick    error
	asked   any
}

func (n *node) pod() *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "web"}}
	return p
}

func (n *node) Pods() []*corev1.Pod        { return []*corev1.Pod{n.pod()} }
func (n *node) RunningPods() []*corev1.Pod { return []*corev1.Pod{n.pod()} }
func (n *node) SyncLoop() error            { return n.sick }

func (n *node) Pod(name types.NamespacedName) (*corev1.Pod, bool) {
	p := n.pod()
	return p, name.Namespace == p.Namespace && name.Name == p.Name
}

func (n *node) Logs(_ context.Context, _ *corev1.Pod, opts *corev1.PodLogOptions, w io.Writer) error {
	if opts.Previous {
		return apierrors.NewBadRequest("previous terminated container not found")
	}
	lines := "all"
	if opts.TailLines != nil {
		lines = fmt.Sprint(*opts.TailLines)
	}
	_, err := fmt.Fprintf(w, "%s lines of %s", lines, opts.Container)
	return err
}

func (n *node) Exec(_ context.Context, _ *corev1.Pod, opts *corev1.PodExecOptions) (*url.URL, error) {
	n.asked = *opts
	return n.runtime, nil
}

func (n *node) Attach(_ context.Context, _ *corev1.Pod, opts *corev1.PodAttachOptions) (*url.URL, error) {
	n.asked = *opts
	return n.runtime, nil
}

func (n *node) PortForward(_ context.Context, _ *corev1.Pod, opts *corev1.PodPortForwardOptions) (*url.URL, error) {
	n.asked = *opts
	return n.runtime, nil
}

func (n *node) RunInContainer(_ context.Context, _ *corev1.Pod, container string, cmd []string) ([]byte, error) {
	if cmd[0] == "false" {
		return nil, errors.New("command 'false' exited with 1: ")
	}
	return fmt.Appendf(nil, "%s ran %q", container, cmd), nil
}

// newNode serves a node over HTTP, with its logs below dir.
func newNode(t *testing.T, change func(*server.Config)) (n *node, at, dir string) {
	t.Helper()
	runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		rw.Flush()
		line, _ := rw.ReadString('\n')
		fmt.Fprint(conn, strings.ToUpper(line))
	}))
	t.Cleanup(runtime.Close)
	to, err := url.Parse(runtime.URL)
	if err != nil {
		t.Fatal(err)
	}
	n, dir = &node{T: t, runtime: to}, t.TempDir()
	metrics, probes := prometheus.NewRegistry(), prometheus.NewRegistry()
	metrics.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_x"}))
	probes.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "prober_x"}))
	cfg := server.Config{
		Node: n, Metrics: metrics, Probes: probes, LogDir: filepath.Join(dir, "logs"), Debugging: true,
		Stats:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "stats at ", r.URL.Path) }),
		Images:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method, " images") }),
		Configz: func() any { return map[string]int{"maxPods": 110} },
	}
	if change != nil {
		change(&cfg)
	}
	srv := httptest.NewServer(server.New(cfg))
	t.Cleanup(srv.Close)
	return n, srv.URL, dir
}

// ask returns the status code and body of a response, without following redirects.
func ask(t *testing.T, method, at string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Location"), string(body))
}

func TestPaths(t *testing.T) {
	t.Parallel()
	_, at, _ := newNode(t, nil)
	for path, want := range map[string]string{
		"GET /healthz":                                 "200 ok",
		"GET /healthz?verbose":                         "200 [+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed",
		"GET /healthz/syncloop":                        "200 ok",
		"GET /healthz/ping":                            "200 ok",
		"GET /healthz/log":                             "200 ok",
		"GET /healthz/other":                           "404 ",
		"GET /stats/summary":                           "200 stats at /stats/summary",
		"GET /metrics":                                 "200 # HELP kubelet_x",
		"GET /metrics/cadvisor":                        "200 stats at /metrics/cadvisor",
		"GET /metrics/resource":                        "200 stats at /metrics/resource",
		"GET /metrics/probes":                          "200 # HELP prober_x",
		"GET /metrics/other":                           "404 ",
		"GET /configz":                                 `200 {"kubeletconfig":{"maxPods":110}}`,
		"GET /debug/pprof/cmdline":                     "200 ",
		"GET /debug/pprof/goroutine?debug=1":           "200 goroutine profile",
		"DELETE /monopod/images?name=x":                "200 DELETE images",
		"GET /checkpoint/default/p/c":                  "404 ",
		"POST /pods":                                   "405 ",
		"GET /containerLogs/default/p/c":               "200 all lines of c",
		"GET /containerLogs/default/p/c?tailLines=7":   "200 7 lines of c",
		"GET /containerLogs/default/p/c?tail=3":        "200 3 lines of c",
		"GET /containerLogs/default/p/c?tail=all":      "200 all lines of c",
		"GET /containerLogs/default/p/c?previous=true": "400 previous terminated container not found",
		"GET /containerLogs/default/p/c?tailLines=-1":  "422 ",
		"GET /containerLogs/default/p/d":               `404 container "d" not found in pod "p"`,
		"GET /containerLogs/default/q/c":               `404 pod "default/q" does not exist`,
		"POST /run/default/p/c?cmd=ls%20-l":            `200 c ran ["ls" "-l"]`,
		"POST /run/default/p/u/c?cmd=ls":               `200 c ran ["ls"]`,
		"POST /run/default/p/other/c?cmd=ls":           `404 pod "default/p" does not exist`,
		"POST /run/default/p/c?cmd=false":              "500 command 'false' exited with 1: ",
		"POST /run/default/p/c":                        "400 cmd is required",
		"GET /run/default/p/c?cmd=ls":                  "405 ",
		"POST /exec/default/p/c?command=ls&output=1":   "400 ", // no upgrade
		"POST /exec/default/p/c?command=ls":            "400 you must specify at least 1 of stdin, stdout, stderr",
		"POST /portForward/default/p?port=80,99999":    `400 unable to parse "99999" as a port`,
		"POST /portForward/default/p/other?port=80":    `404 pod "default/p" does not exist`,
		"GET /unknown":                                 "404 ",
	} {
		method, path, _ := strings.Cut(path, " ")
		if got := ask(t, method, at+path); !strings.HasPrefix(got, want) {
			t.Errorf("%s %s: got %q, want %q", method, path, got, want)
		}
	}
}

func TestPods(t *testing.T) {
	t.Parallel()
	_, at, _ := newNode(t, nil)
	for _, path := range []string{"/pods", "/pods/", "/runningpods/"} {
		got, found := strings.CutPrefix(ask(t, "GET", at+path), "200 ")
		var list corev1.PodList
		if err := json.Unmarshal([]byte(got), &list); !found || err != nil || list.Kind != "PodList" ||
			len(list.Items) != 1 || list.Items[0].Name != "p" {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
}

func TestUnhealthySyncLoop(t *testing.T) {
	t.Parallel()
	n, at, _ := newNode(t, nil)
	n.sick = errors.New("PLEG was last seen active 5m0s ago")
	for path, want := range map[string]string{
		"/healthz":          "500 [+]ping ok\n[+]log ok\n[-]syncloop failed: PLEG was last seen active 5m0s ago\nhealthz check failed",
		"/healthz/syncloop": "500 internal server error: PLEG was last seen active",
		"/healthz/ping":     "200 ok",
	} {
		if got := ask(t, "GET", at+path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	n, at, _ := newNode(t, nil)
	for path, want := range map[string]any{
		"/exec/default/p/c?command=ls&command=-l&output=1&error=1&tty=1": corev1.PodExecOptions{Container: "c",
			Command: []string{"ls", "-l"}, Stdout: true, TTY: true},
		"/exec/default/p/u/c?command=cat&input=1": corev1.PodExecOptions{Container: "c",
			Command: []string{"cat"}, Stdin: true},
		"/attach/default/p/c?output=1&error=1":      corev1.PodAttachOptions{Container: "c", Stdout: true, Stderr: true},
		"/portForward/default/p?port=80,81&port=82": corev1.PodPortForwardOptions{Ports: []int32{80, 81, 82}},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(at, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", path)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %+v, %v", path, resp, err)
		}
		fmt.Fprint(conn, "hello\n")
		if line, err := in.ReadString('\n'); line != "HELLO\n" || fmt.Sprint(n.asked) != fmt.Sprint(want) {
			t.Errorf("%s: read %q, %v, asked for %+v, want %+v", path, line, err, n.asked, want)
		}
	}
}

// A terminal is a login shell, which ends when the client leaves.
func TestTerminal(t *testing.T) {
	t.Parallel()
	_, at, _ := newNode(t, nil)
	if got := ask(t, "GET", at+client.TerminalPath); !strings.HasPrefix(got, "404") {
		t.Errorf("without Terminal: got %s, want 404", got)
	}
	_, at, _ = newNode(t, func(cfg *server.Config) { cfg.Terminal = true })
	if got := ask(t, "GET", at+client.TerminalPath); !strings.HasPrefix(got, "200") {
		t.Errorf("with Terminal: got %s, want 200", got)
	}
	cfg, err := websocket.NewConfig(strings.Replace(at, "http", "ws", 1)+client.TerminalPath, at)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Protocol = []string{"v4.channel.k8s.io"}
	ws, err := websocket.DialConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	ws.PayloadType = websocket.BinaryFrame
	for _, message := range []string{"\x04{\"Width\":91,\"Height\":33}", "\x00echo size $(stty size) pid $$ end\r"} {
		if err := websocket.Message.Send(ws, []byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	found := regexp.MustCompile(`size 33 91 pid (\d+) end`)
	var out []byte
	for !found.Match(out) {
		var data []byte
		if err := websocket.Message.Receive(ws, &data); err != nil {
			t.Fatalf("after %q: %v", out, err)
		}
		out = append(out, data[min(1, len(data)):]...)
	}
	pid, err := strconv.Atoi(string(found.FindSubmatch(out)[1]))
	if err != nil {
		t.Fatal(err)
	}
	ws.Close()
	for unix.Kill(pid, 0) == nil { // until the test's deadline
		time.Sleep(time.Millisecond)
	}
}

func TestLogFolder(t *testing.T) {
	t.Parallel()
	_, at, dir := newNode(t, nil)
	logs := filepath.Join(dir, "logs")
	for path, text := range map[string]string{"secret": "outside", "logs/pods/a/0.log": "inside",
		"logsx/0.log": "outside"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"whole": logs + "/pods/a/0.log", "relative": "pods/a/0.log",
		"out": dir + "/secret", "up": "../secret", "sibling": dir + "/logsx/0.log", "dots": logs + "/../secret",
		"folder": dir, "root": "/",
	} {
		if err := os.Symlink(to, filepath.Join(logs, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(logs, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/logs":                       "301 logs/",
		"/logs/":                      "200 <!doctype html>",
		"/logs/pods/a/":               "200 <!doctype html>",
		"/logs/pods/a/0.log":          "200 inside",
		"/logs/whole":                 "200 inside",
		"/logs/relative":              "200 inside",
		"/logs/?query=kubelet":        "400 queries of node logs (NodeLogQuery) are not supported",
		"/logs/missing":               "404 ",
		"/logs/%2e%2e/secret":         "4",
		"/logs/..%2fsecret":           "4",
		"/logs/pods/..%2f..%2fsecret": "4",
		"/logs/pipe":                  "404 ",
		"/logs/out":                   "404 ", "/logs/up": "404 ", "/logs/sibling": "404 ", "/logs/dots": "404 ",
		"/logs/folder/secret": "404 ", "/logs/root/etc/passwd": "404 ",
	} {
		if got := ask(t, "GET", at+path); !strings.HasPrefix(got, want) || strings.Contains(got, "outside") {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestWithoutDebugging(t *testing.T) {
	t.Parallel()
	_, at, _ := newNode(t, func(c *server.Config) { c.Debugging = false })
	for path, want := range map[string]string{
		"POST /exec/default/p/c?command=ls&output=1": "405 Debug endpoints are disabled.",
		"GET /logs/":                     "405 Debug endpoints are disabled.",
		"GET /debug/pprof/":              "405 Debug endpoints are disabled.",
		"GET /containerLogs/default/p/c": "405 Debug endpoints are disabled.",
		"GET /configz":                   "404 ",
		"GET /metrics":                   "200 ",
		"GET /pods":                      "200 ",
	} {
		method, path, _ := strings.Cut(path, " ")
		if got := ask(t, method, at+path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// The server limits concurrent requests for statistics, because it computes them for each request.
func TestConcurrentScrapes(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	_, at, _ := newNode(t, func(c *server.Config) {
		c.Stats = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { begun <- struct{}{}; <-end })
	})
	answers := make(chan string, 4)
	for range 4 {
		go func() { answers <- ask(t, "GET", at+"/stats/summary") }()
	}
	for range 4 {
		<-begun
	}
	if got := ask(t, "GET", at+"/stats/summary"); !strings.HasPrefix(got, "503") {
		t.Errorf("the fifth concurrent request got %s, want 503", got)
	}
	if got := ask(t, "GET", at+"/metrics"); !strings.HasPrefix(got, "200") {
		t.Errorf("/metrics got %s, want 200", got)
	}
	close(end)
	for range 4 {
		if got := <-answers; !strings.HasPrefix(got, "200") {
			t.Errorf("a concurrent request got %s, want 200", got)
		}
	}
}
