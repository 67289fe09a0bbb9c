package fake

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
)

// port is a listener with a Dial that connects to it.
type port interface {
	net.Listener
	Dial(ctx context.Context) (net.Conn, error)
}

// loopback is a port with a real listener. Close calls release.
type loopback struct {
	net.Listener
	release func()
}

func (l *loopback) Dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
}

func (l *loopback) Close() error {
	l.release()
	return l.Listener.Close()
}

// newInMemory returns a port that is reachable only through its Dial; the first Close calls release.
func newInMemory(addr net.Addr, release func()) port {
	return &inMemory{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{}), release: release}
}

// inMemory is a port in memory.
type inMemory struct {
	addr    net.Addr
	conns   chan net.Conn
	closed  chan struct{}
	release func()
	once    sync.Once
}

func (l *inMemory) Addr() net.Addr { return l.addr }

func (l *inMemory) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *inMemory) Close() error {
	l.once.Do(func() {
		l.release()
		close(l.closed)
	})
	return nil
}

func (l *inMemory) Dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- conn{far, l.addr}:
		return near, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: l.addr,
			Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// conn is a pipe with an address.
type conn struct {
	net.Conn
	addr net.Addr
}

func (c conn) LocalAddr() net.Addr  { return c.addr }
func (c conn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
