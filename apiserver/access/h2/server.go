// Package h2 serves HTTP/2. Frames and compressed headers are read and written with golang.org/x/net/http2; what is between them and an
// http.Handler is made for a server with many quiet watches and many small requests on few connections.
//
//   - Server: the connections of an http.Server.
//   - conn: one connection. Its goroutine reads frames; each request has one, too, which writes its own frames.
//   - stream: one request and its response.
//
// golang.org/x/net/http2's own server keeps 6.5 KB for a stream as long as its handler runs, and passes each frame to the goroutine of its
// connection and back: half of what a GET or an event of a watch cost. Here frames of all streams are appended to one buffer, under the
// connection's lock, and whoever appends to an empty one sees to it that it is sent.
package h2

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"monopod/apiserver/process/guard"
)

const (
	// greetTime limits how long a client may take for its first frame.
	greetTime = 10 * time.Second
	// lastTime limits how long a connection that ends is kept until its client has read the rest, and lingerTime until the client
	// closes it: one that is closed with unread data is reset, and the client may lose what it has not read yet.
	lastTime   = 5 * time.Second
	lingerTime = time.Second
	// frameSize is the maximum size of a frame that is accepted (RFC 9113: 16 KB at least), and firstWindow how much of bodies may be sent
	// before a window is known, in bytes (RFC 9113).
	frameSize   = 16 << 10
	firstWindow = 65535
)

// Server serves the HTTP/2 connections of an http.Server.
type Server struct {
	srv   *http.Server
	guard *guard.Guard

	mu       sync.Mutex // guards what follows
	conns    map[*conn]struct{}
	stopping bool
}

// Configure makes srv serve HTTP/2 to clients of TLS that want it, with the limits of srv.HTTP2, all of which are set, and srv's
// IdleTimeout and MaxHeaderBytes. Shutdown lets running requests end. A nil guard only recovers panics.
func Configure(srv *http.Server, panics *guard.Guard) {
	s := &Server{srv: srv, guard: panics, conns: map[*conn]struct{}{}}
	srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){http2.NextProtoTLS: func(_ *http.Server, c *tls.Conn, h http.Handler) {
		ctx := context.Background()
		if base, ok := h.(interface{ BaseContext() context.Context }); ok { // net/http's, with the values that handlers expect
			ctx = base.BaseContext()
		}
		state := c.ConnectionState()
		s.serve(ctx, c, &state)
	}}
	srv.RegisterOnShutdown(s.shutdown)
}

// serve serves one connection, until it ends. tls is its state, nil without TLS.
func (s *Server) serve(ctx context.Context, nc net.Conn, state *tls.ConnectionState) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &conn{
		s: s, nc: nc, tls: state, ctx: ctx, remote: nc.RemoteAddr().String(),
		framer:  http2.NewFramer(nil, nc),
		streams: map[uint32]*stream{}, firstWindow: firstWindow,
		room: int64(s.srv.HTTP2.MaxReceiveBufferPerConnection), idleSince: time.Now(),
	}
	c.out.open(nc, s.guard, &c.mu)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.framer.MaxHeaderListSize = uint32(s.srv.MaxHeaderBytes)
	c.framer.SetMaxReadFrameSize(frameSize)
	c.framer.SetReuseFrames()
	if !s.add(c) {
		nc.Close()
		return
	}
	defer s.remove(c)
	err := s.guard.Call("connection", c.serve)
	c.end(err)
}

func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// shutdown makes all connections end after their running requests.
func (s *Server) shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for c := range s.conns {
		c.retire()
	}
}

func (s *Server) logf(format string, args ...any) {
	if s.srv.ErrorLog != nil {
		s.srv.ErrorLog.Printf(format, args...)
	} else {
		log.Printf(format, args...)
	}
}

// Errors of requests whose stream or connection has ended.
var (
	errReset = errors.New("http2: stream closed")
	errGone  = errors.New("client disconnected")
)

// secure reports whether HTTP/2 allows the connection's cipher suite (RFC 9113, appendix A).
func secure(state *tls.ConnectionState) bool {
	if state == nil || state.Version >= tls.VersionTLS13 {
		return true
	}
	switch state.CipherSuite {
	case tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256:
		return state.Version == tls.VersionTLS12
	}
	return false
}
