package probe_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"

	"monopod/agent/pod/probe"
)

func hostPort(t *testing.T, address string) (string, int) {
	t.Helper()
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(p)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

// serve serves until the test ends.
func serve(t *testing.T, handler http.HandlerFunc) probe.Target {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	host, port := hostPort(t, server.Listener.Addr().String())
	return probe.Target{Host: host, Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}}
}

func get(path string, headers ...corev1.HTTPHeader) *corev1.HTTPGetAction {
	return &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("web"), HTTPHeaders: headers}
}

// answers is a web server with a path for every kind of response.
func answers(w http.ResponseWriter, r *http.Request) {
	step, last := strings.CutPrefix(r.URL.Path, "/steps/")
	left, _ := strconv.Atoi(step)
	switch {
	case last && left > 0:
		http.Redirect(w, r, fmt.Sprintf("/steps/%d", left-1), http.StatusFound)
	case r.URL.Path == "/away":
		http.Redirect(w, r, "http://example.invalid/", http.StatusFound)
	case r.URL.Path == "/port": // a redirect to the same host
		http.Redirect(w, r, "http://"+r.Host+"/200", http.StatusMovedPermanently)
	case r.URL.Path == "/long":
		w.WriteHeader(http.StatusMultipleChoices)
		for range 20 << 10 {
			fmt.Fprint(w, "x")
		}
	case r.URL.Path == "/cut":
		w.Header().Set("Content-Length", "5")
		fmt.Fprint(w, "x")
	case r.URL.Path == "/a b%":
	default:
		code, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err == nil {
			w.WriteHeader(code)
		}
	}
}

// A status code from 200 to 399 is a success. A redirect to another host is a success with a warning. A probe follows
// up to ten redirects within the container.
func TestHTTP(t *testing.T) {
	t.Parallel()
	const redirected = "Probe terminated redirects, Response body: "
	at := serve(t, answers)
	for path, want := range map[string]struct{ warning, err string }{
		"/200": {}, "/204": {}, "200": {}, "/200?a=b": {},
		"/300":      {warning: redirected},
		"/399":      {warning: redirected},
		"/400":      {err: "HTTP probe failed with statuscode: 400"},
		"/503":      {err: "HTTP probe failed with statuscode: 503"},
		"/away":     {warning: redirected + "<a href=\"http://example.invalid/\">Found</a>.\n\n"},
		"/port":     {},
		"/steps/9":  {},
		"/steps/10": {err: "stopped after 10 redirects"},
		"/long":     {warning: redirected + strings.Repeat("x", 10<<10)},
		"/cut":      {err: "unexpected EOF"},
		"/a b%":     {},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			warning, err := (probe.Caller{}).Do(t.Context(), &corev1.ProbeHandler{HTTPGet: get(path)}, at, time.Minute)
			if warning != want.warning {
				t.Errorf("warning %.80q (%d bytes), want %.80q", warning, len(warning), want.warning)
			}
			if (err == nil) != (want.err == "") || err != nil && !strings.HasSuffix(err.Error(), want.err) {
				t.Errorf("error %v, want %q", err, want.err)
			}
		})
	}
}

func TestTCP(t *testing.T) {
	t.Parallel()
	at := serve(t, answers)
	h := &corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}
	if _, err := (probe.Caller{}).Do(t.Context(), h, at, time.Minute); err != nil {
		t.Error(err)
	}
	h.TCPSocket.Port = intstr.FromString("no such port")
	if _, err := (probe.Caller{}).Do(t.Context(), h, at, time.Minute); err == nil {
		t.Error("a probe of a port name that does not exist succeeded")
	}
}

// A request has the default headers of upstream, unless the user sets them.
func TestHTTPHeaders(t *testing.T) {
	t.Parallel()
	type seen struct{ host, agent, accept, more string }
	var mu sync.Mutex
	var got seen
	at := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		join := func(name string) string { return strings.Join(r.Header.Values(name), "|") }
		got = seen{r.Host, join("User-Agent"), join("Accept"), join("X-More")}
	})
	address := net.JoinHostPort(at.Host, strconv.Itoa(int(at.Ports[0].ContainerPort)))
	for name, c := range map[string]struct {
		headers []corev1.HTTPHeader
		want    seen
	}{
		"none": {nil, seen{address, "kube-%s/1.37", "*/*", ""}},
		"own": {[]corev1.HTTPHeader{{Name: "host", Value: "other"}, {Name: "user-agent", Value: "me"},
			{Name: "Accept", Value: "text/html"}}, seen{"other", "me", "text/html", ""}},
		"empty accept": {[]corev1.HTTPHeader{{Name: "Accept"}}, seen{address, "kube-%s/1.37", "", ""}},
		"twice": {[]corev1.HTTPHeader{{Name: "X-More", Value: "1"}, {Name: "x-more", Value: "2"}},
			seen{address, "kube-%s/1.37", "*/*", "1|2"}},
	} {
		for purpose, ask := range map[string]func(*corev1.HTTPGetAction) (string, error){
			"probe": func(a *corev1.HTTPGetAction) (string, error) {
				return (probe.Caller{}).Do(t.Context(), &corev1.ProbeHandler{HTTPGet: a}, at, time.Minute)
			},
			"lifecycle": func(a *corev1.HTTPGetAction) (string, error) {
				return (probe.Caller{}).HTTPHook(t.Context(), a, at, time.Minute)
			},
		} {
			if _, err := ask(get("/", c.headers...)); err != nil {
				t.Errorf("%s, %s: %v", name, purpose, err)
			}
			want := c.want
			want.agent = strings.Replace(want.agent, "%s", purpose, 1)
			if mu.Lock(); got != want {
				t.Errorf("%s, %s: %+v, want %+v", name, purpose, got, want)
			}
			mu.Unlock()
		}
	}
}

// A hook succeeds with any response, and fails without one.
func TestHTTPHook(t *testing.T) {
	t.Parallel()
	at := serve(t, answers)
	for _, path := range []string{"/200", "/404", "/500", "/away", "/cut"} {
		if warning, err := (probe.Caller{}).HTTPHook(t.Context(), get(path), at, time.Minute); err != nil || warning != "" {
			t.Errorf("%s: %q, %v", path, warning, err)
		}
	}
	if _, err := (probe.Caller{}).HTTPHook(t.Context(), get("/steps/11"), at, time.Minute); err == nil {
		t.Error("a hook with more than ten redirects succeeded")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port := hostPort(t, l.Addr().String())
	l.Close()
	closed := &corev1.HTTPGetAction{Host: host, Port: intstr.FromInt(port)}
	if _, err := (probe.Caller{}).HTTPHook(t.Context(), closed, at, time.Minute); err == nil {
		t.Error("a hook without a server succeeded")
	}
}

// An HTTPS hook to a server without TLS is repeated over HTTP, without the header Authorization.
func TestHTTPSHookOfAPlainServer(t *testing.T) {
	t.Parallel()
	asked := make(chan http.Header, 1)
	at := serve(t, func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header })
	a := get("/", corev1.HTTPHeader{Name: "Authorization", Value: "secret"}, corev1.HTTPHeader{Name: "X-More", Value: "1"})
	a.Scheme = corev1.URISchemeHTTPS
	warning, err := (probe.Caller{}).HTTPHook(t.Context(), a, at, time.Minute)
	if err != nil || !strings.HasSuffix(warning, "got HTTP response, retry with HTTP succeeded") {
		t.Fatalf("warning %q, error %v", warning, err)
	}
	if h := <-asked; h.Get("Authorization") != "" || h.Get("X-More") != "1" {
		t.Errorf("headers %v", h)
	}
}

// The manager reports each warning of a successful probe.
func TestWarningsAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &probe.Manager{Caller: probe.Caller{Dial: pipe}, Clock: clock.RealClock{}}
		defer m.Stop()
		warnings := make(chan string, 10)
		m.Events.Warned = func(id string, kind probe.Kind, warning string) { warnings <- fmt.Sprint(id, kind, warning) }
		m.Add(t.Context(),
			target(&corev1.Container{ReadinessProbe: &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt(80), Host: "pod"},
			}}}))
		time.Sleep(11 * time.Second)
		if !m.Ready("id") || len(warnings) != 2 {
			t.Fatalf("ready %t, %d warnings", m.Ready("id"), len(warnings))
		}
		if got, want := <-warnings, "idReadinessProbe terminated redirects, Response body: away"; got != want {
			t.Errorf("warning %q, want %q", got, want)
		}
	})
}

// pipe connects to a server that redirects to another host.
func pipe(_ context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		if _, err := http.ReadRequest(bufio.NewReader(server)); err == nil {
			fmt.Fprint(server, "HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 4\r\n\r\naway")
		}
	}()
	return client, nil
}
