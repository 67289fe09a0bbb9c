package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits of connections to endpoints; the times are those of ingress-nginx.
const (
	dialTime    = 5 * time.Second
	WaitTime    = 60 * time.Second // for the headers of a response
	idleTime    = 60 * time.Second
	maxIdle     = 512
	maxIdleEach = 64 // for each endpoint
	pingAfter   = 30 * time.Second
	pingTime    = 15 * time.Second
	maxHeaders  = 256 << 10 // of a response, in bytes
	maxTries    = 3
)

var (
	errNoEndpoints = errors.New("no endpoint is ready")
	errNoAnswer    = errors.New("the endpoint did not answer in time")
)

// dialError is the error of a connection that was not established: the endpoint has received nothing.
type dialError struct{ error }

// Unwrap returns the reason.
func (e dialError) Unwrap() error { return e.error }

// Transport sends a request to an endpoint of its backend, and to another one if that cannot have served it.
type Transport struct {
	of      map[protocol]*http.Transport
	retries prometheus.Counter
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// NewTransport returns a transport; dial is nil for the machine's network.
func NewTransport(dial dialFunc, m *Metrics) *Transport {
	dialer := &net.Dialer{Timeout: dialTime, ControlContext: outside}
	dial = cmpFunc(dial, dialer.DialContext)
	connect := func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, dialError{err}
		}
		return c, nil
	}
	t := &Transport{of: map[protocol]*http.Transport{}, retries: m.retries}
	for p, set := range map[protocol]func(*http.Protocols){
		plain:  func(p *http.Protocols) { p.SetHTTP1(true) },
		clear2: func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
		secure: func(p *http.Protocols) { p.SetHTTP1(true); p.SetHTTP2(true) },
	} {
		t.of[p] = &http.Transport{
			DialContext: connect, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders, TLSHandshakeTimeout: dialTime,
			MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdleEach, IdleConnTimeout: idleTime, ExpectContinueTimeout: time.Second,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // pods have certificates for names that are not known here
			HTTP2:           &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTime},
			Protocols:       new(http.Protocols),
		}
		set(t.of[p].Protocols)
	}
	return t
}

func cmpFunc(f, otherwise dialFunc) dialFunc {
	if f == nil {
		return otherwise
	}
	return f
}

// CloseIdle closes the connections to endpoints that no request uses.
func (t *Transport) CloseIdle() {
	for _, one := range t.of {
		one.CloseIdleConnections()
	}
}

type externalKey struct{}

// outside refuses to connect to the node itself for an ExternalName Service: a user who may create one would otherwise
// reach programs that listen only there.
func outside(ctx context.Context, _, address string, _ syscall.RawConn) error {
	if ctx.Value(externalKey{}) == nil {
		return nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if ip := at.Addr().Unmap(); ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsMulticast() {
		return fmt.Errorf("an ExternalName Service must not lead to %s", ip)
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	j := jobOf(r.Context())
	var tried []*endpoint
	var failure error
	for {
		e, now := j.to.Backend.pick(time.Now(), tried)
		if e == nil {
			return nil, cmp.Or(failure, errNoEndpoints)
		}
		j.endpoint = e.address
		resp, unread, err := t.try(r, j, e, now)
		if err == nil {
			return resp, nil
		}
		failure = err
		refused := errors.As(err, new(dialError))
		if refused {
			e.avoid.Store(time.Now().Add(avoidTime).UnixNano())
		}
		tried = append(tried, e)
		again := unread && r.Context().Err() == nil && (refused || idempotent(r.Method) && !errors.Is(err, errNoAnswer))
		if !again || len(tried) == maxTries {
			return nil, failure
		}
		t.retries.Inc()
	}
}

// idempotent reports whether a request may be sent twice (RFC 9110, 9.2.2).
func idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// try sends the request to an endpoint; unread reports whether the body can be sent again.
func (t *Transport) try(r *http.Request, j *job, e *endpoint, now *current) (resp *http.Response, unread bool, err error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	j.end = cancel
	if now.external {
		ctx = context.WithValue(ctx, externalKey{}, true)
	}
	var answered atomic.Bool
	pause, progress := func() {}, func() {} // the time that the client takes does not count against the endpoint
	if wait := j.to.Wait; wait > 0 && !isGRPC(r) {
		late := time.AfterFunc(wait, func() {
			if !answered.Load() {
				cancel(errNoAnswer)
			}
		})
		defer late.Stop()
		pause = func() { late.Stop() }
		progress = func() {
			if !answered.Load() {
				late.Reset(wait)
			}
		}
	}
	out, url := r.WithContext(ctx), *r.URL
	url.Host, url.Scheme = e.address, "http"
	if now.protocol == secure {
		url.Scheme = "https"
	}
	out.URL = &url
	var body *attempt
	if r.Body != nil && j.body != nil {
		body = &attempt{clientBody: j.body, pause: pause, progress: progress}
		out.Body = body
	}
	resp, err = t.of[now.protocol].RoundTrip(out)
	answered.Store(true)
	if err == nil {
		return resp, false, nil
	}
	if cause := context.Cause(ctx); errors.Is(cause, errNoAnswer) {
		err = errNoAnswer
	}
	cancel(err)
	return nil, body == nil || body.unread(), err
}
