package apiserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

const (
	confs     = "/api/v1/namespaces/default/configmaps"
	asPatch   = "Content-Type: application/json-patch+json"
	upgrading = "Connection: Upgrade"
)

// Each copy of a value into itself doubles it: twenty-two copies turn 1 KiB into 4 GiB.
func TestPatchThatDoublesIsRefused(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", confs, `{"metadata":{"name":"c"},"data":{"k":"`+strings.Repeat("x", 1000)+`"}}`, asJSON)
	ops := make([]string, 22)
	for i := range ops {
		ops[i] = fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/k%d"}`, i)
	}
	if code, out := a.read("PATCH", confs+"/c", "["+strings.Join(ops, ",")+"]", asPatch); code != 422 {
		t.Errorf("%d %.200v", code, out)
	}
}

// The body of a request is limited also if it looks like a proxied request or one that opens a stream.
func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	a := serve(t)
	body := strings.Repeat(" ", 4<<20)
	for path, header := range map[string][]string{
		confs + "/a":          nil,
		confs + "/a%2Fproxy":  nil,
		confs + "/a/":         {upgrading},
		confs + "/a?x=/proxy": {upgrading, "Upgrade: SPDY/3.1"},
	} {
		if code, out := a.read("PUT", strings.TrimSuffix(path, "/"), body, append(header, asJSON)...); code != 413 {
			t.Errorf("%s: %d %.200v", path, code, out)
		}
	}
}

// serveWeb is a server with a page.
func serveWeb(t *testing.T) http.Handler {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	srv, err := apiserver.New(t.Context(), apiserver.Config{Registry: registry.New(s, resources, registry.Config{}),
		Authenticator: auth.Any(byToken(), auth.Certificates()), Web: http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	return srv.Handler()
}

// A patch cannot make an object larger than a PUT could.
func TestPatchesAreBounded(t *testing.T) {
	t.Parallel()
	a := serve(t)
	args := `"args":["` + strings.Repeat("x", 2<<20) + `"]`
	if code, out := a.read("POST", pods, strings.Replace(podA, `"image":"i"`, `"image":"i",`+args, 1)); code != 201 {
		t.Fatalf("%d %.200v", code, out)
	}
	add := `[{"op":"add","path":"/spec/containers/0/command","value":["` + strings.Repeat("x", 2<<20) + `"]}]`
	if code, out := a.read("PATCH", pods+"/a", add, asPatch); code != 413 {
		t.Errorf("%d %.200v", code, out)
	}
}

// Several managers together cannot make an object larger than one could.
func TestAppliesAreBounded(t *testing.T) {
	t.Parallel()
	a := serve(t)
	const path = "/api/v1/namespaces/default/podtemplates/p?fieldManager="
	for _, c := range []struct {
		manager string
		code    int
	}{{"a", 201}, {"a", 200}, {"b", 413}} {
		body := `{"apiVersion":"v1","kind":"PodTemplate","metadata":{"name":"p"},` +
			`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"` +
			c.manager + `","image":"i","args":["` + strings.Repeat("x", 2<<20) + `"]}]}}}`
		if code, out := a.read("PATCH", path+c.manager, body, "Content-Type: application/apply-patch+yaml"); code != c.code {
			t.Errorf("%s: %d %.200v", c.manager, code, out)
		}
	}
}

// The server answers a body with many errors at once, with the first errors.
func TestManyErrors(t *testing.T) {
	t.Parallel()
	a := serve(t)
	same := strings.Repeat(`{"name":"c","image":"i"},`, 50_000)
	code, out := a.read("POST", pods, `{"metadata":{"name":"x"},"spec":{"containers":[`+strings.TrimSuffix(same, ",")+
		`]}}`)
	if causes := out["details"].(map[string]any)["causes"].([]any); code != 422 || len(causes) > 1000 {
		t.Errorf("%d with %d causes", code, len(causes))
	}
}

func TestWarningsFitAHeader(t *testing.T) {
	t.Parallel()
	a := serve(t)
	fields := make([]string, 90)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"%d%s\r\nSet-Cookie: a=b":1`, i, strings.Repeat("é", 1000))
	}
	resp := a.do("POST", confs, `{"metadata":{"name":"c"},`+strings.Join(fields, ",")+`}`, asJSON)
	size := 0
	for _, w := range resp.Header.Values("Warning") {
		size += len(w)
	}
	if resp.StatusCode != http.StatusCreated || size == 0 || size > 16<<10 || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("%d, %d bytes of warnings, cookie %q", resp.StatusCode, size, resp.Header.Get("Set-Cookie"))
	}
}

// Numbers that overflow mean no limit instead of zero.
func TestOverflowingTimeoutAndLimit(t *testing.T) {
	t.Parallel()
	a := serve(t)
	if code, out := a.read("GET", confs+"?limit=9223372036854775807", ""); code != 200 {
		t.Errorf("%d %v", code, out)
	}
	if code, out := a.read("POST", confs, `{"metadata":{"name":"c"}}`, asJSON); code != 201 {
		t.Fatalf("%d %v", code, out)
	}
	events := bufio.NewReader(a.do("GET", confs+"?watch=1&timeoutSeconds=9223372036854775807", "").Body)
	for {
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"name":"later"`) {
			return
		}
		if strings.Contains(line, `"name":"c"`) { // the watch is running
			a.read("POST", confs, `{"metadata":{"name":"later"}}`, asJSON)
		}
	}
}

// A grace period that overflows does not end in the past.
func TestOverflowingGracePeriod(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", pods,
		strings.Replace(podA, `"spec":{`, `"spec":{"nodeName":"n","terminationGracePeriodSeconds":9223372036854775807,`, 1))
	obj, err := a.reg.Delete(t.Context(), client.Ref{Resource: client.Pods, Namespace: "default", Name: "a"},
		metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if at := obj.GetDeletionTimestamp(); !at.After(time.Now()) {
		t.Errorf("deletionTimestamp %v", at)
	}
}

// Clients may escape any letter of a path.
func TestEscapedName(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", pods, podA)
	if code, out := a.read("GET", pods+"/%61", ""); code != 200 {
		t.Errorf("%d %v", code, out)
	}
}

func TestYAMLUnderAComment(t *testing.T) {
	t.Parallel()
	a := serve(t)
	if code, out := a.read("POST", confs, "# what it is\n---\nmetadata: {name: c}\n---\n# no more\n",
		"Content-Type: application/yaml"); code != 201 {
		t.Errorf("%d %v", code, out)
	}
}

// A browser sends its user's client certificate with requests of any page, so the server checks the origin,
// whatever token the page sends.
func TestOtherOriginsOpenNoStream(t *testing.T) {
	t.Parallel()
	h := withCertificates(serveWeb(t))
	forged := []string{"Sec-Fetch-Site: same-site", "Origin: https://127.0.0.1:8080"}
	socket := []string{upgrading, "Upgrade: websocket",
		"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io"}
	for name, c := range map[string]struct {
		method, path string
		header       []string
		code         int
	}{
		"read":       {"GET", pods, forged, 200},
		"write":      {"DELETE", pods + "/a", forged, 403},
		"WebSocket":  {"GET", pods + "/a/exec?command=x", slices.Concat(forged, socket), 403},
		"our page":   {"DELETE", pods + "/a", []string{"Sec-Fetch-Site: same-origin"}, 404},
		"no browser": {"DELETE", pods + "/a", nil, 404},
		"a program with an Origin": {"GET", pods + "/a/exec?command=x", slices.Concat([]string{"Origin: http://localhost"},
			socket), 404},
		"an old browser with an Origin": {"GET", pods + "/a/exec?command=x",
			slices.Concat([]string{"Origin: http://localhost",
				"User-Agent: Mozilla/5.0"}, socket), 403},
		"a WebSocket of our page": {"GET", pods + "/a/exec?command=x",
			slices.Concat([]string{"Sec-Fetch-Site: same-origin"}, socket),
			404},
		"a cookie": {"GET", pods, []string{"Cookie: monopod-token=admin", "Test-Certificate: "}, 401},
		"its own token": {"DELETE", pods + "/a", slices.Concat(forged, []string{"Authorization: Bearer admin",
			"Test-Certificate: "}), 404},
		"signing in":                    {"POST", "/login", []string{"Test-Certificate: "}, 401},
		"signing in with a certificate": {"POST", "/login", nil, 404},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		for _, line := range slices.Concat([]string{certified}, c.header) {
			name, value, _ := strings.Cut(line, ": ")
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.code || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// Unknown methods do not become metric labels.
func TestMetricsKnowTheirMethods(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.do("BREW", pods, "", "Authorization: none")
	data, err := io.ReadAll(a.do("GET", "/metrics", "").Body)
	if err != nil || strings.Contains(string(data), "BREW") || !strings.Contains(string(data), `verb="other"`) {
		t.Errorf("%v\n%s", err, data)
	}
}

// A body that ends early is an error of the client.
func TestTruncatedBody(t *testing.T) {
	t.Parallel()
	a := serve(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n"+
		"{\"metadata\":", confs, token)
	conn.(*net.TCPConn).CloseWrite()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("got %s", resp.Status)
	}
}

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// The server disconnects a client that stops reading its watch after a minute, but not one whose watch has no events.
func TestWatchOfStalledClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		resources := registry.Resources()
		s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
		defer s.Close()
		reg := registry.New(s, resources, registry.Config{})
		if err := reg.Bootstrap(t.Context()); err != nil {
			t.Fatal(err)
		}
		srv, err := apiserver.New(t.Context(), apiserver.Config{Registry: reg, Authenticator: auth.Token(token, auth.Admin)})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		h, l := srv.Handler(), make(pipes)
		hs := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			close(ended)
		})}
		go hs.Serve(l)
		defer hs.Close()
		defer close(l)

		conn, server := net.Pipe()
		defer conn.Close()
		l <- server
		fmt.Fprintf(conn, "GET %s?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", confs, token)
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("a watch without events was disconnected")
		default:
		}
		for i := range 10 {
			c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i), Namespace: "default"},
				Data: map[string]string{"k": strings.Repeat("x", 10_000)}}
			if _, err := reg.Create(context.WithoutCancel(t.Context()), c); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("the watch continues without a client")
		}
	})
}

// Deadlines of one response do not affect the next on the same connection.
func TestConnectionIsKept(t *testing.T) {
	t.Parallel()
	a := serve(t)
	resp := a.do("GET", confs+"?watch=1&timeoutSeconds=1", "")
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	a.do("POST", confs, `{"metadata":{"name":"c"},"data":{"k":"`+strings.Repeat("x", 900_000)+`"}}`, asJSON,
		"Expect: 100-continue")
	if code, _ := a.read("GET", confs, ""); code != 200 {
		t.Errorf("got %d", code)
	}
}
