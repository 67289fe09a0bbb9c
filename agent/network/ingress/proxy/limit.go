package proxy

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxConns is the maximum number of open connections of clients; further ones wait.
	maxConns = 4096
	// maxConnsPerClient is the maximum for one address, so that one client cannot use all. Further ones are closed.
	maxConnsPerClient = maxConns / 4
	// writeStall is how long a client may read nothing of a response (nginx: send_timeout).
	writeStall = 60 * time.Second
)

// limitedListener limits the number of open connections, and how long a client may read nothing.
type limitedListener struct {
	net.Listener
	max, maxPerClient int
	gauge             prometheus.Gauge // number of open connections

	mu       sync.Mutex // guards what follows
	freed    *sync.Cond
	open     int
	byClient map[netip.Addr]int
	closed   bool
}

func newLimitedListener(l net.Listener, limit, perClient int, gauge prometheus.Gauge) *limitedListener {
	s := &limitedListener{Listener: l, max: limit, maxPerClient: perClient, gauge: gauge, byClient: map[netip.Addr]int{}}
	s.freed = sync.NewCond(&s.mu)
	return s
}

// Accept implements net.Listener.
func (s *limitedListener) Accept() (net.Conn, error) {
	for {
		if !s.await() {
			return nil, net.ErrClosed
		}
		c, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		var ip netip.Addr
		if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			ip = tcp.AddrPort().Addr().Unmap()
		}
		if s.acquire(ip) {
			return &limitedConn{Conn: c, release: sync.OnceFunc(func() { s.release(ip) })}, nil
		}
		c.Close()
	}
}

// await waits until another connection may be open; false: the listener is closed.
func (s *limitedListener) await() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.open >= s.max && !s.closed {
		s.freed.Wait()
	}
	return !s.closed
}

func (s *limitedListener) acquire(ip netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byClient[ip] >= s.maxPerClient {
		return false
	}
	s.open++
	s.gauge.Inc()
	s.byClient[ip]++
	return true
}

func (s *limitedListener) release(ip netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	s.gauge.Dec()
	if s.byClient[ip]--; s.byClient[ip] == 0 {
		delete(s.byClient, ip)
	}
	s.freed.Signal()
}

// Close implements net.Listener.
func (s *limitedListener) Close() error {
	s.mu.Lock()
	s.closed = true
	s.freed.Broadcast()
	s.mu.Unlock()
	return s.Listener.Close()
}

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	net.Conn
	release  func()
	mayPause bool
}

// allowPauses lets the client read nothing for any time. No Write may be running.
func (c *limitedConn) allowPauses() error {
	c.mayPause = true
	return c.SetWriteDeadline(time.Time{})
}

// Write implements net.Conn. It fails if the client reads nothing for writeStall, unless it may pause.
func (c *limitedConn) Write(p []byte) (int, error) {
	if c.mayPause {
		return c.Conn.Write(p)
	}
	if err := c.SetWriteDeadline(time.Now().Add(writeStall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// CloseWrite ends the direction to the client.
func (c *limitedConn) CloseWrite() error { return closeWrite(c.Conn) }

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.release()
	return c.Conn.Close()
}
