package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	networkingv1 "k8s.io/api/networking/v1"

	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/follow"
)

// pipes is a network in memory, so that time can be virtual.
type pipes struct {
	mu        sync.Mutex // guards listeners
	listeners map[string]*pipeListener
}

type pipeListener struct {
	address string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newPipes() *pipes { return &pipes{listeners: map[string]*pipeListener{}} }

func (p *pipes) listen(address string) *pipeListener {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &pipeListener{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	p.listeners[address] = l
	return l
}

// dial connects from 192.0.2.1. It returns an error if no server listens.
func (p *pipes) dial(ctx context.Context, _, address string) (net.Conn, error) {
	p.mu.Lock()
	l := p.listeners[address]
	p.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- pipeConn{theirs}:
		return ours, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeConn struct{ net.Conn }

func (pipeConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 80), Port: 80} }

// stage is an ingress controller without the API: a handler, its servers and endpoints.
type stage struct {
	t       testing.TB
	net     *pipes
	site    atomic.Pointer[Site]
	via     *Transport
	metrics *Metrics
	opened  []*http.Server
	stops   []func()
}

func newStage(t testing.TB) *stage {
	t.Helper()
	all, err := follow.NewMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMetrics(all)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, net: newPipes(), metrics: m}
	s.via = NewTransport(s.net.dial, m)
	s.site.Store(NewSite())
	return s
}

// close stops all servers and clients, so that a synctest bubble can end.
func (s *stage) close() {
	for _, server := range s.opened {
		server.Close()
	}
	s.via.CloseIdle()
	for _, stop := range s.stops {
		stop()
	}
}

func (s *stage) run(server *http.Server, serve func() error) {
	done := make(chan struct{})
	go func() { defer close(done); _ = serve() }()
	s.opened = append(s.opened, server)
	s.stops = append(s.stops, func() { <-done })
}

// open runs a server with a new handler at "ingress:80" or "ingress:443".
func (s *stage) open(scheme string, set func(*Handler)) *Handler {
	port := map[string]string{"http": "80", "https": "443"}[scheme]
	h := newHandler(entryPoint{scheme, port}, &s.site, s.via)
	h.metrics = s.metrics
	if set != nil {
		set(h)
	}
	server := newServer(h, nil)
	l := newLimitedListener(s.net.listen("ingress:"+port), maxConns, maxConnsPerClient,
		s.metrics.conns.WithLabelValues(scheme))
	s.run(server, func() error {
		if scheme == "https" {
			return server.ServeTLS(l, "", "")
		}
		return server.Serve(l)
	})
	return h
}

// endpoint runs a server at an address.
func (s *stage) endpoint(address string, h http.HandlerFunc, set ...func(*http.Server)) {
	server := &http.Server{Handler: h, ErrorLog: discardLog, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	for _, f := range set {
		f(server)
	}
	l := s.net.listen(address)
	s.run(server, func() error {
		if server.TLSConfig != nil {
			return server.ServeTLS(l, "", "")
		}
		return server.Serve(l)
	})
}

// rule returns a rule that sends requests for a host and path to servers.
func (s *stage) rule(host, path string, o route.Options, what Servers) route.Rule[*Destination] {
	t := Target{Service: follow.Key{Namespace: "default", Name: "web"}, Port: networkingv1.ServiceBackendPort{Number: 80}}
	b := NewBackend(t)
	b.Set(what)
	owner := follow.Key{Namespace: "default", Name: "ing"}
	return route.Rule[*Destination]{Host: host, Path: path,
		To: &Destination{Target: t, Ingress: owner, Options: o, Backend: b, Counts: s.metrics.Of(owner)}}
}

func at80(addresses ...string) Servers { return Servers{addresses: addresses} }

// use replaces the rules and settings.
func (s *stage) use(change func(*Site), rules ...route.Rule[*Destination]) {
	next := &Site{}
	next.Table, _ = route.New(rules)
	if change != nil {
		change(next)
	}
	s.site.Store(next)
}

// client returns a client that connects to the ingress controller for every host.
func (s *stage) client(set ...func(*http.Transport)) *http.Client {
	via := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols),
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	via.Protocols.SetHTTP1(true)
	via.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, _ := net.SplitHostPort(address)
		return s.net.dial(ctx, network, "ingress:"+port)
	}
	for _, f := range set {
		f(via)
	}
	s.stops = append(s.stops, via.CloseIdleConnections)
	return &http.Client{Transport: via,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func http2(t *http.Transport) {
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
}

func serveH2C(s *http.Server) { s.Protocols.SetUnencryptedHTTP2(true) }

// get returns the code and body of a response.
func get(t testing.TB, c *http.Client, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, c, r)
}

func do(t testing.TB, c *http.Client, r *http.Request) string {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", string(body)))
}

// answers returns a handler that answers with a text.
func answers(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, text)
	}
}

// value returns the value of a counter or gauge.
func value(t testing.TB, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}
