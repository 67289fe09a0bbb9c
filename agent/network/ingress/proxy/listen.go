package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
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
	limited  bool // the listener limits the connections
}

// Listen opens the address of a server. Connections wait until Serve.
func Listen(scheme, address string) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return NewServer(scheme, port, l), err
}

// NewServer returns a server for the connections of a listener. port is the one that clients use.
func NewServer(scheme, port string, l net.Listener) *Server {
	return &Server{entryPoint: entryPoint{Scheme: scheme, Port: port}, listener: l}
}

// Close closes a server that has not begun to serve.
func (s *Server) Close() { s.listener.Close() }

// Handler returns the handler of requests, which sends them to endpoints with the Transport.
func (s *Server) Handler(site *atomic.Pointer[Site], via *Transport, m *Metrics) *Handler {
	h := newHandler(s.entryPoint, site, via)
	h.metrics = m
	return h
}

// Serve serves requests until ctx ends, and then waits at most five seconds for those in flight. Upgraded connections
// end then, too.
func (s *Server) Serve(ctx context.Context, h *Handler, g *guard.Guard) error {
	limited := s.listener
	if !s.limited {
		limited = newLimitedListener(limited, maxConns, maxConnsPerClient, h.metrics.conns.WithLabelValues(s.Scheme))
	}
	server := newServer(h, g)
	base, end := context.WithCancel(context.WithoutCancel(ctx)) // Shutdown ignores connections that are upgraded
	defer end()
	server.BaseContext = func(net.Listener) context.Context { return base }
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
		if cert := h.certificate(hello); cert != nil {
			return cert, nil
		}
		return selfSigned()
	}}
	return s
}

// serves reports whether a host has a listener, if the handler is that of a Gateway, or Ingresses may have it.
func (h *Handler) serves(host string) bool {
	return h.site.Load().Listeners.Find(host) != nil || h.Fallback != nil && h.Fallback() != nil
}

// certificate returns the certificate for a client; nil: there is none.
func (h *Handler) certificate(hello *tls.ClientHelloInfo) *tls.Certificate {
	site, host := h.site.Load(), route.Host(hello.ServerName)
	if site.Listeners == nil {
		if cert, ok := site.Certs.Find(host); ok {
			return cert
		}
		return site.Fallback
	}
	if l := site.Listeners.Find(host); l != nil && len(l.Certs) > 0 {
		return supported(l.Certs, hello)
	}
	if h.Fallback != nil {
		if other := h.Fallback(); other != nil {
			return other.certificate(hello)
		}
	}
	return nil
}

// supported returns the first certificate that suits the client and its host, otherwise the first one.
func supported(certs []*tls.Certificate, hello *tls.ClientHelloInfo) *tls.Certificate {
	for _, cert := range certs {
		if hello.SupportsCertificate(cert) == nil {
			return cert
		}
	}
	return certs[0]
}
