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

// Transport sends a request to an endpoint of its backend, and retries another one if the first cannot have served it.
type Transport struct {
	dial       dialFunc
	byProtocol map[protocol]*http.Transport
	retries    prometheus.Counter
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// NewTransport returns a transport; dial is nil for the machine's network.
func NewTransport(dial dialFunc, m *Metrics) *Transport {
	dialer := &net.Dialer{ControlContext: refuseLocal}
	if dial == nil {
		dial = dialer.DialContext
	}
	connect := func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, cmp.Or(stateOf(ctx).to.Connect, dialTime))
		defer cancel()
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, dialError{err}
		}
		return c, nil
	}
	t := &Transport{dial: dial, byProtocol: map[protocol]*http.Transport{}, retries: m.retries}
	for p, set := range map[protocol]func(*http.Protocols){
		http1: func(p *http.Protocols) { p.SetHTTP1(true) },
		h2c:   func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
		https: func(p *http.Protocols) { p.SetHTTP1(true); p.SetHTTP2(true) },
	} {
		t.byProtocol[p] = &http.Transport{
			DialContext: connect, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders,
			TLSHandshakeTimeout: dialTime, ExpectContinueTimeout: time.Second,
			MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdleEach, IdleConnTimeout: idleTime,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the names in pods' certificates are not known
			HTTP2:           &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTime},
			Protocols:       new(http.Protocols),
		}
		set(t.byProtocol[p].Protocols)
	}
	return t
}

// CloseIdle closes the connections to endpoints that no request uses.
func (t *Transport) CloseIdle() {
	for _, one := range t.byProtocol {
		one.CloseIdleConnections()
	}
}

type externalKey struct{}

// refuseLocal refuses connections to the node itself for an ExternalName Service, with which users could otherwise
// reach programs that listen on loopback.
func refuseLocal(ctx context.Context, _, address string, _ syscall.RawConn) error {
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
	j := stateOf(r.Context())
	var tried []*endpoint
	var failure error
	for {
		e, backend := j.to.Backend.pick(time.Now(), j.cookie, tried)
		if e == nil {
			return nil, cmp.Or(failure, errNoEndpoints)
		}
		j.endpoint, j.picked = e.address, e.id
		resp, unread, err := t.try(r, j, e, backend)
		if err == nil {
			return resp, nil
		}
		failure = err
		refused := errors.As(err, new(dialError))
		if refused {
			e.avoidUntil.Store(time.Now().Add(avoidTime).UnixNano())
		}
		tried = append(tried, e)
		retry := unread && r.Context().Err() == nil && (refused || idempotent(r.Method) && !errors.Is(err, errNoAnswer))
		if !retry || len(tried) == maxTries {
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
func (t *Transport) try(r *http.Request, j *requestState, e *endpoint, backend *backendState) (
	resp *http.Response, unread bool, err error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	j.cancel = cancel
	if backend.external {
		ctx = context.WithValue(ctx, externalKey{}, true)
	}
	var answered atomic.Bool
	pause, progress := func() {}, func() {} // the time that the client takes does not count against the endpoint
	if wait := j.to.Wait; wait > 0 && !isGRPC(r) {
		timer := time.AfterFunc(wait, func() {
			if !answered.Load() {
				cancel(errNoAnswer)
			}
		})
		defer timer.Stop()
		pause = func() { timer.Stop() }
		progress = func() {
			next := wait
			if send := j.to.Send; send > 0 && !j.body.ended.Load() {
				next = send
			}
			if !answered.Load() {
				timer.Reset(next)
			}
		}
	}
	out, url := r.WithContext(ctx), *r.URL
	url.Host, url.Scheme = e.address, "http"
	if backend.protocol == https {
		url.Scheme = "https"
	}
	out.URL = &url
	var body *attempt
	if r.Body != nil && j.body != nil {
		body = &attempt{clientBody: j.body, pause: pause, progress: progress}
		out.Body = body
	}
	resp, err = t.byProtocol[backend.protocol].RoundTrip(out)
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
