package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/guard"
)

// Limits of connections of clients.
const (
	headerTime   = 10 * time.Second // for a request's header, and for a TLS handshake
	keepTime     = 75 * time.Second // without a request (nginx: keepalive_timeout)
	maxHeader    = 64 << 10         // bytes, with the request line; nginx has 32 KiB
	maxStreams   = 128              // of one HTTP/2 connection (nginx: http2_max_concurrent_streams)
	shutdownTime = 5 * time.Second  // for requests in flight when the controller stops
)

// discardLog discards net/http's messages about clients that do not speak HTTP or TLS.
var discardLog = log.New(io.Discard, "", 0)

// Server serves clients at one address.
type Server struct {
	entryPoint
	listener net.Listener
}

// Listen opens the address of a server. Connections wait until Serve.
func Listen(scheme, address string) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return &Server{entryPoint{Scheme: scheme, Port: port}, l}, err
}

// Close closes a server that has not begun to serve.
func (s *Server) Close() { s.listener.Close() }

// Handler returns the handler of requests, which sends them to endpoints with the Transport.
func (s *Server) Handler(site *atomic.Pointer[Site], via *Transport, m *Metrics) *Handler {
	h := newHandler(s.entryPoint, site, via)
	h.metrics = m
	return h
}

// Serve serves requests until ctx ends, and then waits at most five seconds for those in flight.
func (s *Server) Serve(ctx context.Context, h *Handler, g *guard.Guard) error {
	limited := newLimitedListener(s.listener, maxConns, maxConnsPerClient, h.metrics.conns.WithLabelValues(s.Scheme))
	server := newServer(h, g)
	group, ctx := guard.With(ctx)
	group.Do(func() error {
		var err error
		if s.Scheme == "https" {
			err = server.ServeTLS(limited, "", "")
		} else {
			err = server.Serve(limited)
		}
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	})
	group.Do(func() error {
		<-ctx.Done()
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		if server.Shutdown(late) != nil {
			server.Close()
		}
		return nil
	})
	return group.Wait()
}

func newServer(h *Handler, g *guard.Guard) *http.Server {
	s := &http.Server{
		Handler: g.Handler("ingress", h), ReadHeaderTimeout: headerTime, IdleTimeout: keepTime,
		MaxHeaderBytes: maxHeader, ErrorLog: discardLog, Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: keepTime, PingTimeout: pingTime, WriteByteTimeout: writeStall,
		},
	}
	s.Protocols.SetHTTP1(true)
	if h.Scheme == "http" {
		s.Protocols.SetUnencryptedHTTP2(true)
		return s
	}
	s.Protocols.SetHTTP2(true)
	selfSigned := route.SelfSigned()
	s.TLSConfig = &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		site := h.site.Load()
		if cert, ok := site.Certs.Find(route.Host(strings.TrimSuffix(hello.ServerName, "."))); ok {
			return cert, nil
		}
		if site.Fallback != nil {
			return site.Fallback, nil
		}
		return selfSigned()
	}}
	return s
}
