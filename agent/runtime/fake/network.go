package fake

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// Network connects sandboxes. There are no packets: a connection is a pipe in memory or, with real loopback addresses,
// a connection of the kernel. It is safe for concurrent use.
type Network struct {
	loopback bool // servers listen on real loopback addresses

	mu        sync.Mutex // guards the fields below, and the fields of every endpoint
	addresses *pool
	at        map[netip.Addr]*Endpoint
}

// Endpoint is the connection of a sandbox to the network.
type Endpoint struct {
	network *Network
	ip      netip.Addr // not valid: in the host's network, or detached
	ports   map[uint16]port
}

// newNetwork returns a network with addresses of subnet. For an invalid one it is 10.88.0.0/16, or
// with loopback as many 127.88.N.0/24 as are needed and not used by another process.
func newNetwork(subnet netip.Prefix, loopback bool) *Network {
	return &Network{loopback: loopback, addresses: newPool(subnet, loopback), at: map[netip.Addr]*Endpoint{}}
}

// Close frees the subnets for other processes.
func (n *Network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addresses.close()
}

// Attach returns a new endpoint, with an address of its own unless it is in the host's
// network. It fails with ResourceExhausted if no address is free.
func (n *Network) Attach(host bool) (*Endpoint, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := &Endpoint{network: n, ports: map[uint16]port{}}
	if host {
		return e, nil
	}
	ip, err := n.addresses.take()
	if err != nil {
		return nil, err
	}
	e.ip, n.at[ip] = ip, e
	return e, nil
}

// Detach frees the endpoint's address.
func (e *Endpoint) Detach() {
	n := e.network
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.at, e.ip)
	delete(n.addresses.held, e.ip)
	e.ip = netip.Addr{}
}

// Address returns the endpoint's address; empty if it has none.
func (e *Endpoint) Address() string {
	e.network.mu.Lock()
	defer e.network.mu.Unlock()
	if !e.ip.IsValid() {
		return ""
	}
	return e.ip.String()
}

// Dial connects to a server in a sandbox, as from the node.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return n.dial(ctx, nil, network, address)
}

// Holds reports whether a sandbox has the address.
func (n *Network) Holds(ip netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at[ip] != nil
}

// Dial connects to a server in this or another sandbox.
func (e *Endpoint) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return e.network.dial(ctx, e, network, address)
}

// dial connects from an endpoint, or from the node if from is nil.
func (n *Network) dial(ctx context.Context, from *Endpoint, network, address string) (net.Conn, error) {
	to, err := n.reach(from, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return to.Dial(ctx)
}

func (n *Network) reach(from *Endpoint, network, address string) (port, error) {
	host, number, err := splitAddress(network, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.behind(from, host)
	if e == nil {
		return nil, os.NewSyscallError("connect", syscall.EHOSTUNREACH)
	}
	if p, ok := e.ports[number]; ok {
		return p, nil
	}
	return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
}

// behind returns the endpoint of an address; nil: there is none. The caller holds mu.
func (n *Network) behind(from *Endpoint, host string) *Endpoint {
	if host == "" || host == "localhost" || host == "127.0.0.1" {
		return from
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	return n.at[ip]
}

func splitAddress(network, address string) (host string, number uint16, err error) {
	if network != "tcp" && network != "tcp4" {
		return "", 0, net.UnknownNetworkError(network)
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	parsed, err := strconv.ParseUint(text, 10, 16)
	return host, uint16(parsed), err
}

// Listen returns a listener in the sandbox, on a free port if the address has port 0.
func (e *Endpoint) Listen(network, address string) (net.Listener, error) {
	n := e.network
	host, number, err := splitAddress(network, address)
	if err != nil {
		return nil, err
	}
	if n.loopback {
		return n.listenLoopback(e, host, number)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if number == 0 {
		number = e.freePort()
	}
	l := newInMemory(&net.TCPAddr{IP: e.ip.AsSlice(), Port: int(number)}, func() { n.release(e, number) })
	return l, e.bind(number, l)
}

func (n *Network) listenLoopback(e *Endpoint, host string, number uint16) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if host == "" || host == "0.0.0.0" {
		host = "127.0.0.1" // the host's network
		if e.ip.IsValid() {
			host = e.ip.String()
		}
	}
	// Listening on a loopback address does not wait for anything.
	listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(number))))
	if errors.Is(err, syscall.EADDRINUSE) && number != 0 && e.ports[number] == nil {
		// Another program listens on this port of all addresses: the server is only reachable from pods, probes and
		// port-forward.
		l := newInMemory(&net.TCPAddr{IP: e.ip.AsSlice(), Port: int(number)}, func() { n.release(e, number) })
		return l, e.bind(number, l)
	}
	if err != nil {
		return nil, err
	}
	number = listener.Addr().(*net.TCPAddr).AddrPort().Port()
	l := &loopback{Listener: listener, release: func() { n.release(e, number) }}
	if err := e.bind(number, l); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return l, nil
}

func (n *Network) release(e *Endpoint, number uint16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(e.ports, number)
}

// bind adds a server. The caller holds Network.mu.
func (e *Endpoint) bind(number uint16, p port) error {
	if _, ok := e.ports[number]; ok {
		return &net.OpError{Op: "listen", Net: "tcp", Addr: p.Addr(), Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	e.ports[number] = p
	return nil
}

// freePort returns a port without a server. The caller holds Network.mu.
func (e *Endpoint) freePort() uint16 {
	number := uint16(32768) // the first of Linux' ephemeral ports
	for e.ports[number] != nil {
		number++
	}
	return number
}
