package fake

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"monopod/agent/runtime/fake/port"
)

// Dial connects to what listens on an address of a pod, as the node's network
// would.
func (r *Runtime) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return r.dial(ctx, nil, network, address)
}

// Holds reports whether a pod has the address.
func (r *Runtime) Holds(ip netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[ip] != nil
}

// dial is Dial, from within a sandbox when from is set.
func (r *Runtime) dial(ctx context.Context, from *sandbox, network, address string) (net.Conn, error) {
	to, err := r.reach(from, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return to.Dial(ctx)
}

func (r *Runtime) reach(from *sandbox, network, address string) (port.Port, error) {
	host, number, err := splitAddress(network, address)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.behind(from, host)
	if s == nil {
		return nil, os.NewSyscallError("connect", syscall.EHOSTUNREACH)
	}
	if p, ok := s.ports[number]; ok {
		return p, nil
	}
	return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
}

// behind finds the sandbox that has an address. The caller holds mu.
func (r *Runtime) behind(from *sandbox, host string) *sandbox {
	if host == "" || host == "localhost" || host == "127.0.0.1" {
		return from
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	return r.at[ip]
}

func splitAddress(network, address string) (host string, number uint16, err error) {
	if network != "tcp" && network != "tcp4" {
		return "", 0, net.UnknownNetworkError(network)
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return host, uint16(n), err
}

// listen makes something in a sandbox reachable, until it is closed.
func (r *Runtime) listen(s *sandbox, network, address string) (net.Listener, error) {
	host, number, err := splitAddress(network, address)
	if err != nil {
		return nil, err
	}
	if r.cfg.Loopback {
		return r.listenLoopback(s, host, number)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if number == 0 {
		number = s.freePort()
	}
	l := port.InMemory(&net.TCPAddr{IP: s.ip.AsSlice(), Port: int(number)}, func() { r.release(s, number) })
	return l, s.bind(number, l)
}

func (r *Runtime) listenLoopback(s *sandbox, host string, number uint16) (net.Listener, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if host == "" || host == "0.0.0.0" {
		host = "127.0.0.1" // the host's network
		if s.ip.IsValid() {
			host = s.ip.String()
		}
	}
	// Listening on a loopback address does not wait for anything.
	real, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(number))))
	if err != nil {
		return nil, err
	}
	number = real.Addr().(*net.TCPAddr).AddrPort().Port()
	l := port.OnLoopback(real, func() { r.release(s, number) })
	if err := s.bind(number, l); err != nil {
		return nil, errors.Join(err, real.Close())
	}
	return l, nil
}

func (r *Runtime) release(s *sandbox, number uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(s.ports, number)
}

// bind and freePort want mu held.
func (s *sandbox) bind(number uint16, p port.Port) error {
	if _, ok := s.ports[number]; ok {
		return &net.OpError{Op: "listen", Net: "tcp", Addr: p.Addr(), Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	s.ports[number] = p
	return nil
}

func (s *sandbox) freePort() uint16 {
	number := uint16(32768) // where Linux begins
	for s.ports[number] != nil {
		number++
	}
	return number
}
