package apiserver_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"monopod/apiserver"
	"monopod/apiserver/auth"
	"monopod/apiserver/flow"
	"monopod/apiserver/registry"
	"monopod/store"
)

// byToken authenticates the user whose name is the token; "admin" is the admin.
func byToken() auth.Authenticator {
	return auth.Func(func(r *http.Request) (auth.User, bool) {
		name := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if name == "admin" {
			return auth.Admin, true
		}
		u := auth.User{Name: name, Groups: []string{auth.Authenticated}}
		if name == "old" {
			u.Warning, u.Notes = "the credential is old", map[string]string{"age": "old"}
		}
		return u, name != ""
	})
}

// piped serves connections in memory, under synctest; it returns a function that opens one.
func piped(t *testing.T, cfg apiserver.Config) (dial func() net.Conn, end func()) {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	cfg.Registry = registry.New(s, resources, registry.Config{})
	if err := cfg.Registry.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv, err := apiserver.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := make(pipes)
	hs := &http.Server{Handler: srv.Handler()}
	go hs.Serve(l)
	dial = func() net.Conn {
		conn, server := net.Pipe()
		l <- server
		return conn
	}
	return dial, func() {
		close(l)
		hs.Close()
		s.Close()
		synctest.Wait()
	}
}

func request(conn net.Conn, user, method, path, body string, length int) {
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", method,
		path, user, length, body)
}

func answerOf(t *testing.T, conn net.Conn) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(data)
}

func TestSlowBodyIsAborted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dial, end := piped(t, apiserver.Config{Authenticator: byToken()})
		defer end()
		conn := dial()
		var writer sync.WaitGroup
		defer writer.Wait()
		defer conn.Close()
		from := time.Now()
		writer.Go(func() {
			request(conn, "a", "POST", confs, "{", 1000)
			for {
				time.Sleep(time.Second)
				if _, err := conn.Write([]byte(" ")); err != nil {
					return
				}
			}
		})
		resp, body := answerOf(t, conn)
		if took := time.Since(from); resp.StatusCode != http.StatusGatewayTimeout ||
			!strings.Contains(body, `"reason":"Timeout"`) || took > 61*time.Second {
			t.Errorf("%d %s after %s", resp.StatusCode, body, took)
		}
	})
}

// Users who occupy all seats of their priority level delay other users of this level, but neither another level nor the
// admin.
func TestConcurrentRequestsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dial, end := piped(t,
			apiserver.Config{Authenticator: byToken(),
				Limits: flow.Limits{MaxRequestsInflight: 1, MaxMutatingRequestsInflight: 1}})
		defer end()
		for _, user := range []string{"noisy", "noisier"} {
			slow := dial()
			defer slow.Close()
			go request(slow, user, "POST", confs, "{", 1000)
			synctest.Wait()
		}
		for _, c := range []struct {
			user, method string
			code         int
		}{{"quiet", "POST", 429}, {"quiet", "GET", 429}, {"system:kube-scheduler", "POST", 201}, {"admin", "POST", 201}} {
			conn, from, body := dial(), time.Now(), `{"metadata":{"generateName":"c-"}}`
			go request(conn, c.user, c.method, confs, body, len(body))
			resp, text := answerOf(t, conn)
			conn.Close()
			refused := c.code == 429
			if resp.StatusCode != c.code || refused != (resp.Header.Get("Retry-After") == "1") ||
				refused != (time.Since(from) == 15*time.Second) {
				t.Errorf("%s %s: %d %s %v after %s", c.method, c.user, resp.StatusCode, text, resp.Header, time.Since(from))
			}
		}
	})
}

func TestClientsMayRequestShorterTimeout(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for query, want := range map[string]int{"timeout=": 200, "timeout=0s": 200, "timeout=30s": 200, "timeout=x": 400,
		"timeout=-1s": 400} {
		if code, out := a.read("GET", confs+"?"+query, ""); code != want {
			t.Errorf("%s: %d %v", query, code, out)
		}
	}
	if code, out := a.read("POST", confs+"?timeout=1ns", `{"metadata":{"name":"late"}}`, asJSON); code != 504 ||
		out["reason"] != "Timeout" {
		t.Errorf("%d %v", code, out)
	}
}

func TestMetricsOfRequests(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("GET", confs, "")
	watching := a.do("GET", confs+"?watch=1", "")
	defer watching.Body.Close()
	readBody(t, a.do("GET", confs+"?watch=1&timeoutSeconds=1", "")) // it is counted when it has ended
	data := readBody(t, a.do("GET", "/metrics", ""))
	for _, want := range []string{
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",` +
			`scope="namespace",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",` +
			`scope="namespace",subresource="",verb="WATCH",version="v1"} 1`,
		`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",group="",resource="configmaps",` +
			`scope="namespace",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_request_sli_duration_seconds_bucket{component="apiserver",group="",resource="configmaps",` +
			`scope="namespace",subresource="",verb="LIST",version="v1",le="1"} 1`,
		`apiserver_longrunning_requests{resource="configmaps",subresource="",verb="WATCH"} 1`,
		`apiserver_current_inflight_requests{request_kind="readOnly"} 1`, // the request for the metrics
		`apiserver_current_inflight_requests{request_kind="mutating"} 0`,
	} {
		if !strings.Contains(data, want) {
			t.Errorf("no %s", want)
		}
	}
}
