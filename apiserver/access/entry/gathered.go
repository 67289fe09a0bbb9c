package entry

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"monopod/apiserver/process/guard"
)

const (
	// gatheredSize is how much of a connection's output waits while more is sent, in bytes. TLS sends it in records of 16 KB.
	gatheredSize = 64 << 10
	// lastTime limits how long a connection that is closed waits until its client has read the rest.
	lastTime = 5 * time.Second
)

// serveHTTP2 makes srv serve HTTP/2.
//
// net/http's own choice of the next frame looks at every stream of a connection, of which most are quiet watches: with 1,000 of them
// that takes a fifth of the CPU. The random choice knows those with frames. And the HTTP/2 server writes at most 4 KB at once, often a
// frame alone, which costs a record of TLS and a system call: what the streams of a connection write at the same time is sent together.
//
//nolint:staticcheck // deprecated for Go 1.27, where net/http has another choice
func serveHTTP2(srv *http.Server, panics *guard.Guard) error {
	h2 := &http2.Server{NewWriteScheduler: http2.NewRandomWriteScheduler}
	if err := http2.ConfigureServer(srv, h2); err != nil {
		return err
	}
	srv.TLSNextProto[http2.NextProtoTLS] = func(srv *http.Server, c *tls.Conn, h http.Handler) {
		opts := &http2.ServeConnOpts{Handler: direct{srv.Handler, h}, BaseConfig: srv}
		if base, ok := h.(interface{ BaseContext() context.Context }); ok { // as the function that this one replaces
			opts.Context = base.BaseContext()
		}
		h2.ServeConn(gather(c, panics), opts)
	}
	return nil
}

// direct calls a server's handler at once, unless net/http has something to add to the request, which general does: each frame counts on the
// stack of an idle watch.
type direct struct{ handler, general http.Handler }

// ServeHTTP implements http.Handler.
func (d direct) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil || r.RequestURI == "*" {
		d.general.ServeHTTP(w, r)
	} else {
		d.handler.ServeHTTP(w, r)
	}
}

// secureConn is what the HTTP/2 server uses of a *tls.Conn.
type secureConn interface {
	net.Conn
	ConnectionState() tls.ConnectionState
}

// gathered is a connection that sends its writes in the background. An error fails the writes after it.
type gathered struct {
	secureConn
	guard   *guard.Guard
	mu      sync.Mutex // guards what follows
	changed sync.Cond
	waiting []byte // is not sent yet
	sending bool   // a goroutine sends
	err     error
}

func gather(c secureConn, panics *guard.Guard) *gathered {
	g := &gathered{secureConn: c, guard: panics}
	g.changed.L = &g.mu
	return g
}

// buffers are for the output of connections.
var buffers = sync.Pool{New: func() any { return new(make([]byte, 0, gatheredSize+gatheredSize/2)) }}

// Write implements net.Conn.
func (g *gathered) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.waiting) >= gatheredSize && g.err == nil {
		g.changed.Wait()
	}
	if g.err != nil {
		return 0, g.err
	}
	if g.waiting == nil {
		g.waiting = *buffers.Get().(*[]byte)
	}
	g.waiting = append(g.waiting, p...)
	if !g.sending {
		g.sending = true
		g.guard.Spawn("connection", g.send)
	}
	return len(p), nil
}

// send sends what is written until there is no more.
func (g *gathered) send() {
	runtime.Gosched() // streams that are about to write do so before
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.waiting) > 0 && g.err == nil {
		out := g.waiting
		g.waiting = nil
		g.changed.Broadcast()
		g.mu.Unlock()
		err := g.guard.Call("connection", func() error { _, err := g.secureConn.Write(out); return err })
		if out = out[:0]; cap(out) <= 2*gatheredSize {
			buffers.Put(&out)
		}
		g.mu.Lock()
		g.err = err
	}
	g.sending = false
	g.changed.Broadcast()
}

// Close sends the rest and closes the connection.
func (g *gathered) Close() error {
	err := g.SetWriteDeadline(time.Now().Add(lastTime))
	g.mu.Lock()
	for g.sending && err == nil {
		g.changed.Wait()
	}
	g.mu.Unlock()
	return g.secureConn.Close()
}
