// Package port is what listens in a sandbox of the fake runtime.
package port

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
)

// Port listens. Dial connects to it.
type Port interface {
	net.Listener
	Dial(ctx context.Context) (net.Conn, error)
}

// OnLoopback is a port that really listens; release is called when it is closed.
func OnLoopback(real net.Listener, release func()) Port {
	return &loopback{Listener: real, release: release}
}

// loopback listens for real.
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

// InMemory is a port that only its Dial reaches; release is called once, when it is closed.
func InMemory(addr net.Addr, release func()) Port {
	return &listener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{}), release: release}
}

// listener listens in memory.
type listener struct {
	addr    net.Addr
	conns   chan net.Conn
	closed  chan struct{}
	release func()
	once    sync.Once
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.release()
		close(l.closed)
	})
	return nil
}

func (l *listener) Dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- conn{far, l.addr}:
		return near, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: l.addr, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// conn gives a pipe an address.
type conn struct {
	net.Conn
	addr net.Addr
}

func (c conn) LocalAddr() net.Addr  { return c.addr }
func (c conn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
