package proxy

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// Max is the maximum number of open connections of clients; further ones wait.
	Max = 4096
	// MaxEach is the maximum of one address, so that one client cannot take them all. Further ones are closed.
	MaxEach = Max / 4
	// WriteStall is how long a client may read nothing of a response (nginx: send_timeout).
	WriteStall = 60 * time.Second
)

// Listener limits the number of open connections, and how long a client may read nothing.
type Listener struct {
	net.Listener
	total, each int
	gauge       prometheus.Gauge // of taken

	mu     sync.Mutex // guards what follows
	freed  *sync.Cond
	taken  int
	by     map[netip.Addr]int
	closed bool
}

// New returns a listener with at most total open connections, and each of one address. open counts them.
func New(l net.Listener, total, each int, open prometheus.Gauge) *Listener {
	s := &Listener{Listener: l, total: total, each: each, gauge: open, by: map[netip.Addr]int{}}
	s.freed = sync.NewCond(&s.mu)
	return s
}

// Accept implements net.Listener.
func (s *Listener) Accept() (net.Conn, error) {
	for {
		if !s.await() {
			return nil, net.ErrClosed
		}
		c, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		ip := addressOf(c)
		if s.take(ip) {
			return &Conn{Conn: c, leave: sync.OnceFunc(func() { s.leave(ip) })}, nil
		}
		c.Close()
	}
}

func addressOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// await waits for a free seat; false: the listener is closed.
func (s *Listener) await() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.taken >= s.total && !s.closed {
		s.freed.Wait()
	}
	return !s.closed
}

func (s *Listener) take(ip netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[ip] >= s.each {
		return false
	}
	s.taken++
	s.gauge.Inc()
	s.by[ip]++
	return true
}

func (s *Listener) leave(ip netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	s.gauge.Dec()
	if s.by[ip]--; s.by[ip] == 0 {
		delete(s.by, ip)
	}
	s.freed.Signal()
}

// Close implements net.Listener.
func (s *Listener) Close() error {
	s.mu.Lock()
	s.closed = true
	s.freed.Broadcast()
	s.mu.Unlock()
	return s.Listener.Close()
}

// Conn is a connection that has a seat.
type Conn struct {
	net.Conn
	leave func()
}

// Write implements net.Conn. It fails if the client reads nothing for WriteStall.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(WriteStall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.leave()
	return c.Conn.Close()
}
