package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/guard"
)

// Streams are the routes of a Gateway's port for TCP and TLS, whose bytes are not interpreted. They do not change.
type Streams struct {
	// Listeners of TLS, in the order of route.SortListeners. Their rules have only a Host. nil: the port is TCP.
	TLS route.Listeners[*Split]
	TCP *Split // nil: there is no route
}

// ServeStreams accepts connections of clients until ctx ends, and connects them with endpoints. TLS connections whose
// server name no listener of streams has go to web, if it is not nil and serves the name; others are closed.
func (s *Server) ServeStreams(ctx context.Context, streams *atomic.Pointer[Streams], web *Handler, via *Transport,
	m *Metrics, g *guard.Guard) error {
	limited := newLimitedListener(s.listener, maxConns, maxConnsPerClient, m.conns.WithLabelValues(s.Scheme))
	conns := &handedOver{Listener: limited, conns: make(chan net.Conn), closed: make(chan struct{})}
	group, ctx := guard.With(ctx)
	if web != nil {
		inner := &Server{entryPoint: s.entryPoint, listener: conns, limited: true}
		group.Do(func() error { return inner.Serve(ctx, web, g) })
	}
	group.Do(func() error {
		defer context.AfterFunc(ctx, func() { limited.Close() })()
		var running sync.WaitGroup
		defer running.Wait()
		for {
			c, err := limited.Accept()
			switch no := syscall.Errno(0); {
			case ctx.Err() != nil:
				if err == nil {
					c.Close()
				}
				return nil
			case errors.As(err, &no) && no.Temporary(): // the process has too many open files, for example
				select {
				case <-ctx.Done():
				case <-time.After(acceptPause):
				}
				continue
			case err != nil:
				return err
			}
			g.Go(&running, "gateway", func() { serveStream(ctx, c, streams.Load(), web, conns, via, g) })
		}
	})
	return group.Wait()
}

// acceptPause is the time after an error until further connections are accepted; the longest of net/http.
const acceptPause = time.Second

// handedOver is a listener whose connections another one has accepted.
type handedOver struct {
	net.Listener
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Accept implements net.Listener.
func (h *handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// give hands a connection over. It returns false if ctx ends first.
func (h *handedOver) give(ctx context.Context, c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-ctx.Done():
		return false
	}
}

// Close implements net.Listener.
func (h *handedOver) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// serveStream connects a client with an endpoint, or hands its connection over, or closes it.
func serveStream(ctx context.Context, client net.Conn, s *Streams, web *Handler, conns *handedOver, via *Transport,
	g *guard.Guard) {
	c, to := client, s.TCP
	given := false
	defer func() {
		if !given {
			c.Close()
		}
	}()
	if s.TLS != nil {
		name, replayed, err := serverName(c)
		if err != nil {
			return
		}
		c = replayed
		l := s.TLS.Find(name)
		if l == nil {
			given = web != nil && web.serves(name) && conns.give(ctx, c)
			return
		}
		if to = tlsRule(l, name); to != nil && len(l.Certs) > 0 {
			if c, err = endTLS(ctx, c, l.Certs); err != nil {
				return
			}
		}
	}
	if to == nil {
		return
	}
	choice := to.choose(rand.IntN)
	if choice.Broken != "" {
		return
	}
	endpoint, err := via.connect(ctx, choice.Backend)
	if err != nil {
		return
	}
	defer endpoint.Close()
	if limited, ok := client.(*limitedConn); ok && limited.allowPauses() != nil { // unlike those of HTTP
		return
	}
	join(ctx, c, endpoint, g)
}

// tlsRule returns where the connections for a server name go; nil: there is no route.
func tlsRule(l *route.Listener[*Split], name string) *Split {
	for i := range l.Rules {
		if route.MatchesHost(l.Rules[i].Host, name) {
			return l.Rules[i].To
		}
	}
	return nil
}

// endTLS returns the connection inside of TLS, after the handshake.
func endTLS(ctx context.Context, c net.Conn, certs []*tls.Certificate) (net.Conn, error) {
	server := tls.Server(c, &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return supported(certs, hello), nil
	}})
	ctx, cancel := context.WithTimeout(ctx, headerTime)
	defer cancel()
	return server, server.HandshakeContext(ctx)
}

// connect connects to a server of a backend.
func (t *Transport) connect(ctx context.Context, b *Backend) (net.Conn, error) {
	var tried []*endpoint
	for len(tried) < maxTries {
		e, state := b.pick(time.Now(), "", tried)
		if e == nil {
			break
		}
		limited, cancel := context.WithTimeout(ctx, dialTime)
		if state.external {
			limited = context.WithValue(limited, externalKey{}, true)
		}
		c, err := t.dial(limited, "tcp", e.address)
		cancel()
		if err == nil {
			return c, nil
		}
		e.avoidUntil.Store(time.Now().Add(avoidTime).UnixNano())
		tried = append(tried, e)
	}
	return nil, errNoEndpoints
}

// join copies in both directions until both have ended, one fails, or ctx ends. It closes a.
func join(ctx context.Context, a, b net.Conn, g *guard.Guard) {
	defer context.AfterFunc(ctx, func() { a.Close(); b.Close() })()
	var both sync.WaitGroup
	copyTo := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if err != nil || closeWrite(to) != nil {
			a.Close()
			b.Close()
		}
	}
	g.Go(&both, "gateway", func() { copyTo(a, b) })
	g.Go(&both, "gateway", func() { copyTo(b, a) })
	both.Wait()
	a.Close()
}

// closeWrite ends one direction of a connection, or both if it cannot.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// errPeeked ends a handshake whose beginning has been read.
var errPeeked = errors.New("the server name is known")

// serverName reads the beginning of a TLS connection. It returns the name of the server that the client requests, and a
// connection that begins anew.
func serverName(c net.Conn) (name string, replayed net.Conn, err error) {
	if err := c.SetReadDeadline(time.Now().Add(headerTime)); err != nil {
		return "", nil, err
	}
	var read bytes.Buffer
	err = tls.Server(readOnly{c, io.TeeReader(c, &read)}, &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name = route.Host(hello.ServerName)
			return nil, errPeeked
		}}).Handshake()
	if !errors.Is(err, errPeeked) {
		return "", nil, err
	}
	return name, &replay{c, io.MultiReader(&read, c)}, c.SetReadDeadline(time.Time{})
}

// readOnly is a connection to which nothing is written.
type readOnly struct {
	net.Conn
	from io.Reader
}

// Read implements net.Conn.
func (r readOnly) Read(p []byte) (int, error) { return r.from.Read(p) }

// Write implements net.Conn.
func (readOnly) Write(p []byte) (int, error) { return len(p), nil }

// replay is a connection whose first bytes have been read before.
type replay struct {
	net.Conn
	from io.Reader
}

// Read implements net.Conn.
func (r *replay) Read(p []byte) (int, error) { return r.from.Read(p) }

// CloseWrite ends the direction to the client.
func (r *replay) CloseWrite() error { return closeWrite(r.Conn) }
