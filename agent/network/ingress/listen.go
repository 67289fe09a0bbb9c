package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"monopod/agent/network/ingress/certs"
	"monopod/agent/network/ingress/route"
	"monopod/agent/network/ingress/seats"
	"monopod/apiserver/process/guard"
)

// Limits of connections of clients.
const (
	headerTime   = 10 * time.Second // for a request's header, and for a TLS handshake
	keepTime     = 75 * time.Second // without a request (nginx: keepalive_timeout)
	maxHeader    = 64 << 10         // bytes, with the request line; nginx has 32 KiB
	maxStreams   = 128              // of one HTTP/2 connection (nginx: http2_max_concurrent_streams)
	shutdownTime = 5 * time.Second  // for the requests that run when the controller stops
)

// silent drops what net/http says about clients that do not speak HTTP or TLS.
var silent = log.New(io.Discard, "", 0)

// door is a server that listens.
type door struct {
	front
	listener net.Listener
}

// open listens; the zero door if no address is given.
func open(scheme, address string) (*door, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return &door{front{scheme: scheme, port: port}, l}, err
}

// serve serves requests until ctx ends, and then finishes those that run, for at most five seconds.
func (d *door) serve(ctx context.Context, h *handler, g *guard.Guard) error {
	limited := seats.New(d.listener, seats.Max, seats.MaxEach, h.metrics.conns.WithLabelValues(d.scheme))
	server := newServer(h, g)
	group, ctx := guard.With(ctx)
	group.Do(func() error {
		var err error
		if d.scheme == "https" {
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

func newServer(h *handler, g *guard.Guard) *http.Server {
	s := &http.Server{
		Handler: g.Handler(Name, h), ReadHeaderTimeout: headerTime, IdleTimeout: keepTime, MaxHeaderBytes: maxHeader, ErrorLog: silent,
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: keepTime, PingTimeout: pingTime, WriteByteTimeout: seats.WriteStall},
		Protocols: new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	if h.scheme == "http" {
		s.Protocols.SetUnencryptedHTTP2(true)
		return s
	}
	s.Protocols.SetHTTP2(true)
	self := certs.SelfSigned()
	s.TLSConfig = &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		now := h.site.Load()
		if cert, ok := now.certs.Find(route.Host(strings.TrimSuffix(hello.ServerName, "."))); ok {
			return cert, nil
		}
		if now.fallback != nil {
			return now.fallback, nil
		}
		return self()
	}}
	return s
}
