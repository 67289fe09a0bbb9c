package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"

	"go.uber.org/zap"
)

// writeOnly is a connection from which nothing is read until the test ends.
type writeOnly struct {
	net.Conn
	end <-chan struct{}
}

// Read implements net.Conn.
func (w writeOnly) Read([]byte) (int, error) { <-w.end; return 0, io.EOF }

// to returns a Split that leads to an address.
func (s *stage) to(address string) *Split {
	t := Target{Service: follow.Key{Namespace: "default", Name: address}, Port: networkingv1.ServiceBackendPort{Number: 80}}
	b := NewBackend(t)
	b.Set(at80(address))
	owner := follow.Key{Namespace: "default", Name: "HTTPRoute/r"}
	return &Split{Total: 1, Choices: []Choice{{Weight: 1,
		To: &Destination{Target: t, Ingress: owner, Backend: b, Counts: s.metrics.Of(owner)}}}}
}

// gateway runs a server for TLS, or for TCP if streams has no TLS, on loopback. Endpoints are on loopback, too.
func (s *stage) gateway(streams *Streams, web *Handler) (address string) {
	s.t.Helper()
	s.via = NewTransport(nil, s.metrics)
	l, err := new(net.ListenConfig).Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	var at atomic.Pointer[Streams]
	at.Store(streams)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- NewServer("https", "443", l).ServeStreams(ctx, &at, web, s.via, s.metrics, guard.Logging(zap.NewNop()))
	}()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
		s.close()
	})
	return l.Addr().String()
}

func TestTCP(t *testing.T) {
	t.Parallel()
	echo, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				all, _ := io.ReadAll(c) // until the client ends its direction
				_, _ = c.Write([]byte(strings.ToUpper(string(all))))
			}()
		}
	}()
	s := newStage(t)
	address := s.gateway(&Streams{TCP: s.to(echo.Addr().String())}, nil)
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write([]byte("hello"))
	_ = c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "HELLO" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTCPWithoutRoute(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.gateway(&Streams{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// failOnce is a listener whose first Accept fails.
type failOnce struct {
	net.Listener
	failed atomic.Bool
}

func (l *failOnce) Accept() (net.Conn, error) {
	if l.failed.CompareAndSwap(false, true) {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// TestTooManyFiles accepts connections again after the process had too many open files.
func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		l := s.net.listen("198.51.100.1:5432")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		at := new(atomic.Pointer[Streams])
		at.Store(new(Streams))
		go func() {
			done <- NewServer("tcp", "5432", &failOnce{Listener: l}).ServeStreams(ctx, at, nil, s.via, s.metrics,
				guard.Logging(zap.NewNop()))
		}()
		limited, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		c, err := s.net.dial(limited, "tcp", "198.51.100.1:5432")
		if err != nil {
			t.Error(err)
		} else if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) { // there is no route
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestSilentHandshake closes a connection whose client does not continue its handshake, and no endpoint sees it.
func TestSilentHandshake(t *testing.T) {
	t.Parallel()
	pair := httptest.NewTLSServer(nil)
	defer pair.Close()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		endpoint := s.net.listen("10.0.0.1:80")
		client, server := net.Pipe()
		end := make(chan struct{})
		defer close(end)
		go func() {
			_ = tls.Client(writeOnly{client, end}, &tls.Config{ServerName: "a", InsecureSkipVerify: true}).Handshake()
		}()
		streams := &Streams{TLS: route.Listeners[*Split]{{Certs: []*tls.Certificate{&pair.TLS.Certificates[0]},
			Rules: []route.HTTPRule[*Split]{{To: s.to("10.0.0.1:80")}}}}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			serveStream(t.Context(), server, streams, nil, nil, s.via, guard.Logging(zap.NewNop()))
		}()
		select {
		case <-endpoint.conns:
			t.Error("an endpoint got a connection")
			client.Close()
		case <-done:
		case <-time.After(time.Minute):
			t.Error("the connection is open after a minute")
			client.Close()
		}
		<-done
	})
}

// TestTLS serves one name by passing TLS through, one by ending it, and one with HTTPS; others are closed.
func TestTLS(t *testing.T) {
	t.Parallel()
	passed := httptest.NewTLSServer(answers("passed"))
	defer passed.Close()
	plain := httptest.NewServer(answers("plain"))
	defer plain.Close()
	cert := &passed.TLS.Certificates[0]
	s := newStage(t)
	pass := s.to(passed.Listener.Addr().String())
	end := s.to(plain.Listener.Addr().String())
	rules := func(to *Split) []route.HTTPRule[*Split] { return []route.HTTPRule[*Split]{{To: to}} }
	site := &Site{Listeners: route.Listeners[*Split]{
		{Host: "web.example.com", Certs: []*tls.Certificate{cert}, Rules: rules(end)}}}
	s.site.Store(site)
	s.via = NewTransport(nil, s.metrics)
	web := newHandler(entryPoint{"https", "443"}, &s.site, s.via)
	web.metrics = s.metrics
	address := s.gateway(&Streams{TLS: route.Listeners[*Split]{
		{Host: "pass.example.com", Rules: rules(pass)},
		{Host: "end.example.com", Certs: []*tls.Certificate{cert}, Rules: rules(end)},
		{Host: "*.empty.org"},
	}}, web)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}}}
	defer client.CloseIdleConnections()
	for host, want := range map[string]string{"pass.example.com": "200 passed", "end.example.com": "200 plain",
		"web.example.com": "200 plain"} {
		if got := get(t, client, "https://"+host+"/"); got != want {
			t.Errorf("%s: %s", host, got)
		}
	}
	for _, host := range []string{"other.example.com", "a.empty.org"} {
		if got := get(t, client, "https://"+host+"/"); !strings.Contains(got, "EOF") && !strings.Contains(got, "reset") {
			t.Errorf("%s: %s, want a closed connection", host, got)
		}
	}
}

// TestGatewayRules sends requests through the filters of a route.
func TestGatewayRules(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.endpoint("10.0.0.1:80", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Old", "1")
		_, _ = io.WriteString(w, r.Host+r.URL.String()+" "+r.Header.Get("X-Added")+r.Header.Get("X-Gone"))
	})
	changed, broken, moved := s.to("10.0.0.1:80"), s.to("10.0.0.1:80"), s.to("10.0.0.1:80")
	to := changed.Choices[0].To
	to.Host = "inner"
	to.Filters = route.Filters{Path: &route.PathChange{Prefix: "/app", To: "/"},
		Request:  []route.HeaderChange{{Name: "X-Added", Value: "yes"}, {Name: "X-Gone", Op: route.RemoveHeader}},
		Response: []route.HeaderChange{{Name: "X-Old", Op: route.RemoveHeader}}}
	broken.Choices[0].To.Broken = "Service gone does not exist"
	moved.Choices[0].To.Filters.Redirect = &route.Redirect{Scheme: "https", Code: 301}
	rules := []route.HTTPRule[*Split]{{Path: "/app", To: changed}, {Path: "/broken", To: broken}, {Path: "/moved", To: moved}}
	s.site.Store(&Site{Listeners: route.Listeners[*Split]{{Host: "*.example.com", Rules: rules}}})
	fallback := false
	var other *Handler
	s.open("http", func(h *Handler) {
		other = newHandler(entryPoint{"http", "80"}, new(atomic.Pointer[Site]), s.via)
		other.metrics = s.metrics
		other.site.Store(NewSite())
		h.Fallback = func() *Handler {
			if fallback {
				return other
			}
			return nil
		}
	})
	defer s.close()
	c := s.client()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a.example.com/app/x?y=z", nil)
	r.Header.Set("X-Gone", "no")
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(body) != "inner/x?y=z yes" || resp.Header.Get("X-Old") != "" {
		t.Errorf("%q, header %v", body, resp.Header)
	}
	for url, want := range map[string]string{
		"http://a.example.com/broken": "500 the route of the Gateway has no valid backend for this request",
		"http://a.example.com/none":   "404 no route of the Gateway matches this request",
		"http://example.org/app":      "404 no route of the Gateway matches this request",
		"http://a.example.com/moved":  "301",
	} {
		if got := get(t, c, url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
	fallback = true
	if got := get(t, c, "http://example.org/app"); got != "404 no Ingress has a rule for this host and path" {
		t.Errorf("the Ingresses' handler: %s", got)
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	a, b := new(Destination), new(Destination)
	s := Split{Total: 4, Choices: []Choice{{To: a, Weight: 3}, {To: b, Weight: 1}}}
	for n, want := range []*Destination{a, a, a, b} {
		if got := s.choose(func(below int) int {
			if below != 4 {
				t.Errorf("a number below %d", below)
			}
			return n
		}); got != want {
			t.Errorf("%d: the wrong destination", n)
		}
	}
}
