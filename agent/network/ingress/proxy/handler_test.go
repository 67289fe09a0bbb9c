package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"monopod/agent/network/ingress/route"
)

// in runs a test in virtual time.
func in(t *testing.T, test func(t *testing.T, s *stage)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		defer func() {
			s.close()
			time.Sleep(time.Second) // virtual time, because net/http delays closing a connection by half a second
		}()
		test(t, s)
	})
}

func TestRequestsReachTheirEndpointUnchanged(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		var got *http.Request
		s.endpoint("10.0.0.1:80", func(_ http.ResponseWriter, r *http.Request) { got = r })
		trusted := func(h *Handler) { h.Trusted = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }
		h := s.open("http", nil)
		s.use(nil, s.rule("", "/", route.Options{}, at80("10.0.0.1:80")))
		c := s.client()
		send := func(target string, header ...string) http.Header {
			t.Helper()
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a.com"+target, nil)
			for _, line := range header {
				name, value, _ := strings.Cut(line, ": ")
				r.Header.Add(name, value)
			}
			if answer := do(t, c, r); answer != "200" {
				t.Fatalf("%s: %s", target, answer)
			}
			return got.Header
		}
		for _, target := range []string{"/", "/a%2Fb/%20", "/x?a=1;b=2&c=%zz", "/a//b/../c", "/?"} {
			send(target)
			if got.RequestURI != target || got.Host != "a.com" {
				t.Errorf("%s arrives at the endpoint as %s with the host %s", target, got.RequestURI, got.Host)
			}
		}
		expect := func(what string, h http.Header, want map[string]string) {
			t.Helper()
			for name, value := range want {
				if strings.Join(h.Values(name), "|") != value {
					t.Errorf("%s: %s is %q, want %q", what, name, h.Values(name), value)
				}
			}
		}
		expect("plain", send("/", "Cookie: a=b", "User-Agent: ", "Accept: x", "Connection: X-Hop", "X-Hop: 1"),
			map[string]string{
				"X-Forwarded-For": "192.0.2.1", "X-Real-Ip": "192.0.2.1", "X-Forwarded-Proto": "http", "X-Forwarded-Scheme": "http",
				"X-Forwarded-Host": "a.com",
				"X-Forwarded-Port": "80", "Cookie": "a=b", "User-Agent": "", "Accept": "x", "X-Hop": "", "Accept-Encoding": "",
			})
		if id := got.Header.Get("X-Request-Id"); len(id) != 32 {
			t.Errorf("request id %q", id)
		}
		spoofed := []string{"X-Forwarded-For: 1.1.1.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: b.com",
			"X-Forwarded-Port: 1", "X-Real-Ip: 1.1.1.1", "Forwarded: for=1.1.1.1", "X-Request-Id: mine",
			"Connection: X-Real-Ip, X-Request-Id"}
		expect("spoofed", send("/", spoofed...), map[string]string{
			"X-Forwarded-For": "192.0.2.1", "X-Real-Ip": "192.0.2.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "a.com",
			"X-Forwarded-Port": "80", "Forwarded": "", "X-Request-Id": "mine",
		})
		trusted(h)
		expect("trusted", send("/", spoofed...), map[string]string{
			"X-Forwarded-For": "1.1.1.1, 192.0.2.1", "X-Real-Ip": "1.1.1.1", "X-Forwarded-Proto": "https",
			"X-Forwarded-Host": "b.com", "X-Forwarded-Port": "1", "Forwarded": "",
		})
		expect("hops", send("/", "X-Forwarded-For: 6.6.6.6, 1.1.1.1", "X-Forwarded-For: 192.0.2.9"), map[string]string{
			"X-Forwarded-For": "6.6.6.6, 1.1.1.1, 192.0.2.9, 192.0.2.1", "X-Real-Ip": "1.1.1.1", "X-Forwarded-Proto": "http",
		})
		expect("long id", send("/", "X-Request-Id: "+strings.Repeat("x", 200)),
			map[string]string{"X-Request-Id": got.Header.Get("X-Request-Id")})
		if len(got.Header.Get("X-Request-Id")) != 32 {
			t.Error("the proxy forwarded a request ID that is too long")
		}
	})
}

func TestRedirects(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.endpoint("10.0.0.1:80", answers("here"))
		port := ""
		secure := func(h *Handler) {
			h.HTTPSPort = func() string { return port }
			h.Trusted = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		}
		s.open("http", secure)
		s.open("https", secure)
		rule := func(host string, o route.Options) route.Rule[*Destination] {
			return s.rule(host, "/", o, at80("10.0.0.1:80"))
		}
		s.use(func(x *Site) { x.Secured = route.Hosts[struct{}]{"tls.com": {}, "off.com": {}, "*.tls.com": {}} },
			rule("tls.com", route.Options{Redirect: true}), rule("off.com", route.Options{}),
			rule("plain.com", route.Options{Redirect: true}), rule("forced.com", route.Options{Forced: true}),
			rule("*.tls.com", route.Options{Redirect: true}))
		c := s.client()
		for _, row := range []struct{ port, url, proto, want string }{
			{"", "http://tls.com/x", "", "200 here"},
			{"443", "http://tls.com/x?a=b", "", "308 https://tls.com/x?a=b"},
			{"8443", "http://TLS.com:80/x", "", "308 https://tls.com:8443/x"},
			{"443", "http://a.tls.com/", "", "308 https://a.tls.com/"},
			{"443", "http://tls.com/x", "https", "200 here"},
			{"443", "https://tls.com/x", "", "200 here"},
			{"443", "http://off.com/x", "", "200 here"},
			{"443", "http://plain.com/x", "", "200 here"},
			{"443", "http://forced.com/x", "", "308 https://forced.com/x"},
			{"443", "http://tls.com/.well-known/acme-challenge/x", "", "200 here"},
			{"443", "http://tls.com//evil.com/..", "", "308 https://tls.com//evil.com/.."},
		} {
			port = row.port
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, row.url, nil)
			if row.proto != "" {
				r.Header.Set("X-Forwarded-Proto", row.proto)
			}
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if got := fmt.Sprint(resp.StatusCode, " ", string(body)+resp.Header.Get("Location")); got != row.want {
				t.Errorf("%s: %s, want %s", row.url, got, row.want)
			}
		}
	})
}

// A connection serves further requests after one whose body no endpoint has read.
func TestUnreadBodies(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		s.endpoint("10.0.0.1:80", answers("ok"))
		o := route.Options{Wait: WaitTime}
		s.use(nil, s.rule("", "/ok", o, at80("10.0.0.1:80")), s.rule("", "/closed", o, at80("10.0.0.9:80")))
		dialled := 0
		c := s.client(func(via *http.Transport) {
			dial := via.DialContext
			via.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				dialled++
				return dial(ctx, network, address)
			}
		})
		for i := range 200 {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.com/closed",
				strings.NewReader(strings.Repeat("x", 1+i*100)))
			if got := do(t, c, r); got != "502 the endpoint did not answer" {
				t.Fatalf("request %d: %s", i, got)
			}
			r, _ = http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.com/ok", strings.NewReader("x"))
			if got := do(t, c, r); got != "200 ok" {
				t.Fatalf("after request %d: %s", i, got)
			}
		}
		if dialled != 1 {
			t.Errorf("the client opened %d connections, want one", dialled)
		}
	})
}

func TestRefusals(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		logged, logs := observer.New(zap.InfoLevel)
		s.open("http", func(h *Handler) { h.Access = zap.New(logged) })
		s.endpoint("10.0.0.1:80", answers("ok"))
		s.endpoint("10.0.0.2:80", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		s.endpoint("10.0.0.3:80", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // net/http detects the disconnection of a client only after that
			<-r.Context().Done()
		})
		s.endpoint("10.0.0.4:80", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", maxHeaders+1))
		})
		o := route.Options{MaxBody: 10, Wait: WaitTime}
		s.use(nil, s.rule("", "/ok", o, at80("10.0.0.1:80")), s.rule("", "/breaks", o, at80("10.0.0.2:80")),
			s.rule("", "/hangs", o, at80("10.0.0.3:80")),
			s.rule("", "/shouts", o, at80("10.0.0.4:80")), s.rule("", "/closed", o, at80("10.0.0.9:80", "10.0.0.8:80")),
			s.rule("", "/empty", o, Servers{}))
		c := s.client()
		const late, broken = "504 the endpoint did not answer in time", "502 the endpoint did not answer"
		const tooLarge = "413 the body of the request is too large"
		for _, row := range []struct{ method, path, body, want string }{
			{"GET", "/ok", "", "200 ok"},
			{"POST", "/ok", "123456789", "200 ok"},
			{"POST", "/ok", "12345678901", tooLarge},
			{"POST", "/ok", "chunked12345678901", tooLarge},
			{"GET", "/none", "", "404 no Ingress has a rule for this host and path"},
			{"GET", "/empty", "", "503 no endpoint of the Service is ready"},
			{"GET", "/closed", "", broken},
			{"POST", "/closed", "12", broken},
			{"GET", "/breaks", "", broken},
			{"GET", "/shouts", "", broken},
			{"GET", "/hangs", "", late},
			{"POST", "/hangs", "12", late},
		} {
			var body io.Reader = strings.NewReader(row.body)
			if rest, chunked := strings.CutPrefix(row.body, "chunked"); chunked {
				body = io.MultiReader(strings.NewReader(rest))
			}
			r, _ := http.NewRequestWithContext(t.Context(), row.method, "http://a.com"+row.path, body)
			if got := do(t, c, r); got != row.want {
				t.Errorf("%s %s %s: %s, want %s", row.method, row.path, row.body, got, row.want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a.com/hangs", nil)
		time.AfterFunc(time.Second, cancel)
		if got := do(t, c, r); !strings.Contains(got, "canceled") {
			t.Errorf("cancelled request: %s", got)
		}
		synctest.Wait()
		codes := map[string]int{}
		for _, e := range logs.All() {
			codes[fmt.Sprint(e.ContextMap()["code"])]++
		}
		if diff := cmp.Diff(map[string]int{"200": 2, "413": 2, "404": 1, "503": 1, "502": 4, "504": 2, "499": 1},
			codes); diff != "" {
			t.Errorf("codes in the access log: %s", diff)
		}
		if last := logs.All()[0].ContextMap(); last["client"] != "192.0.2.1" || last["ingress"] != "default/ing" ||
			last["endpoint"] != "10.0.0.1:80" || last["bytes"] != int64(2) {
			t.Errorf("first entry of the access log: %v", last)
		}
		if n := value(t, s.metrics.requests.WithLabelValues("default", "ing", "5xx")); n != 7 {
			t.Errorf("counted %v requests with 5xx, want 7", n)
		}
		if n := value(t, s.metrics.requests.WithLabelValues("", "", "4xx")); n != 1 {
			t.Errorf("counted %v requests without a rule, want 1", n)
		}
	})
}

// The test sends requests that the client of net/http cannot send.
func TestStrangeRequests(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		s.endpoint("10.0.0.1:80", answers("ok"))
		s.use(nil, s.rule("", "/", route.Options{}, at80("10.0.0.1:80")))
		for request, want := range map[string]string{
			"GET / HTTP/1.0\r\n\r\n":                                                        "200",
			"GET http://other/ HTTP/1.1\r\nHost: a\r\n\r\n":                                 "200",
			"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n":                                         "200", // the answer of net/http
			"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n":                                   "400",
			"GET / HTTP/1.1\r\n\r\n":                                                        "400",
			"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n":                                  "400",
			"GET / HTTP/1.1\r\nHost: a b\r\n\r\n":                                           "400",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx": "400",
			"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n":                  "501",
			"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 2*maxHeader):           "431",
			"GET /" + strings.Repeat("x", 2*maxHeader):                                      "431",
			"rubbish\r\n\r\n": "400",
		} {
			conn, err := s.net.dial(t.Context(), "", "ingress:80")
			if err != nil {
				t.Fatal(err)
			}
			go io.WriteString(conn, request)
			line, err := bufio.NewReader(conn).ReadString('\n')
			if _, code, _ := strings.Cut(line, " "); !strings.HasPrefix(code, want) {
				t.Errorf("%.60q: %q, %v, want %s", request, line, err, want)
			}
			conn.Close()
		}
	})
}

func TestAnotherEndpoint(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		broken := func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			panic(http.ErrAbortHandler)
		}
		ok := func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprint(w, "ok ", string(body))
		}
		s.endpoint("10.0.0.1:80", ok)
		s.endpoint("10.0.0.2:80", broken)
		refused := at80("10.0.0.1:80", "10.0.0.3:80", "10.0.0.4:80")
		resets := at80("10.0.0.1:80", "10.0.0.2:80")
		c := s.client()
		for _, row := range []struct {
			method, body string
			to           Servers
			bad          string // code of requests that fail; empty: none fails
		}{
			{"GET", "", refused, ""}, {"POST", "body", refused, ""}, {"PUT", "body", refused, ""},
			{"GET", "", resets, ""}, {"DELETE", "", resets, ""}, {"HEAD", "", resets, ""},
			{"POST", "", resets, "502"}, {"PUT", "body", resets, "502"}, {"PATCH", "body", resets, "502"},
		} {
			s.use(nil, s.rule("", "/", route.Options{}, row.to))
			bad := ""
			for range 4 {
				r, _ := http.NewRequestWithContext(t.Context(), row.method, "http://a.com/", strings.NewReader(row.body))
				got := do(t, c, r)
				if want := strings.TrimSpace("200 ok " + row.body); got != want && (row.method != "HEAD" || got != "200") {
					bad, _, _ = strings.Cut(got, " ")
				}
			}
			if bad != row.bad {
				t.Errorf("%s %q to %v: failed with %q, want %q", row.method, row.body, row.to.addresses, bad, row.bad)
			}
		}
	})
}

// An endpoint that does not accept connections delays only one request.
func TestDeadEndpointIsAvoided(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		s.endpoint("10.0.0.1:80", answers("ok"))
		s.net.listen("10.0.0.2:80") // without Accept
		s.use(nil, s.rule("", "/", route.Options{}, at80("10.0.0.1:80", "10.0.0.2:80")))
		c := s.client()
		began := time.Now()
		for range 20 {
			if got := get(t, c, "http://a.com/"); got != "200 ok" {
				t.Fatal(got)
			}
		}
		if took := time.Since(began); took != dialTime {
			t.Errorf("20 requests took %v", took)
		}
	})
}

// A running request keeps its rules; the next request uses the new ones.
func TestReload(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		begun, finish := make(chan struct{}), make(chan struct{})
		s.endpoint("10.0.0.1:80", func(w http.ResponseWriter, _ *http.Request) {
			close(begun)
			<-finish
			fmt.Fprint(w, "old")
		})
		s.endpoint("10.0.0.2:80", answers("new"))
		s.use(nil, s.rule("", "/", route.Options{}, at80("10.0.0.1:80")))
		c := s.client()
		var got string
		var running sync.WaitGroup
		running.Go(func() { got = get(t, c, "http://a.com/") })
		<-begun
		s.use(nil, s.rule("", "/", route.Options{}, at80("10.0.0.2:80")))
		if now := get(t, c, "http://a.com/"); now != "200 new" {
			t.Errorf("the next request: %s", now)
		}
		close(finish)
		running.Wait()
		if got != "200 old" {
			t.Errorf("the request that ran: %s", got)
		}
	})
}

// An ExternalName Service must not lead to loopback, link-local, unspecified or multicast addresses.
func TestExternalNames(t *testing.T) {
	t.Parallel()
	ctx := context.WithValue(t.Context(), externalKey{}, true)
	for address, ok := range map[string]bool{"192.0.2.1:80": true, "[2001:db8::1]:80": true, "127.0.0.1:80": false,
		"[::1]:80": false, "[::ffff:127.0.0.1]:80": false, "169.254.169.254:80": false, "0.0.0.0:80": false,
		"224.0.0.1:80": false} {
		if err := refuseLocal(ctx, "tcp", address, nil); (err == nil) != ok {
			t.Errorf("ExternalName with the address %s: %v", address, err)
		}
		if err := refuseLocal(t.Context(), "tcp", address, nil); err != nil {
			t.Errorf("endpoint with the address %s: %v", address, err)
		}
	}
}
