package entry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// podListen is the state of the listener for the pods of a node in this process, which cannot reach a loopback address.
type podListen struct {
	once    sync.Once
	serving chan struct{} // closed when secure is set

	mu     sync.Mutex // guards what follows
	secure *http.Server
	at     netip.AddrPort
	moved  chan struct{} // closed when at changes
}

// serve sets the server of ListenForPods, which waits for it.
func (p *podListen) serve(secure *http.Server) {
	p.mu.Lock()
	p.secure = secure
	p.mu.Unlock()
	p.once.Do(func() { close(p.serving) })
}

func (p *podListen) set(at netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = at
	close(p.moved)
	p.moved = make(chan struct{})
}

// get returns the address at which pods reach the server, or the zero value if they cannot, and a channel that is
// closed when it changes.
func (p *podListen) get() (at netip.AddrPort, moved <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at, p.moved
}

// ListenForPods serves pods at an address of this machine until ctx ends, if the server listens on loopback or with
// another IP family. pods reports whether an address belongs to a pod. The address becomes Advertised, and remains so
// while the process stops, because the next process advertises it again. The port is that of Listen, or any other if it
// is taken. A server that listens on all addresses advertises it while the machine has no default route.
func (a *Entry) ListenForPods(ctx context.Context, at netip.Addr, pods func(netip.Addr) bool) error {
	main := a.Listens()
	if reachable(main.Addr(), at) {
		if main.Addr().IsUnspecified() {
			a.pods.set(netip.AddrPortFrom(at, main.Port()))
		}
		return nil
	}
	select {
	case <-a.pods.serving:
	case <-ctx.Done():
		return nil
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(at, main.Port()).String())
	if err != nil {
		if l, err = net.Listen("tcp", netip.AddrPortFrom(at, 0).String()); err != nil {
			return err
		}
	}
	a.pods.set(netip.MustParseAddrPort(l.Addr().String()))
	defer context.AfterFunc(ctx, func() { l.Close() })()
	err = a.pods.secure.ServeTLS(plainListener{podListener{l, pods}}, "", "")
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// reachable reports whether clients in the network of an address of this machine reach a listener. A listener on ::
// also accepts IPv4.
func reachable(listens, from netip.Addr) bool {
	if listens.IsUnspecified() && listens.Is6() {
		return true
	}
	return !listens.IsLoopback() && listens.Unmap().Is4() == from.Is4()
}

// podListener accepts connections only from pods and from this machine, because other machines may route packets to the
// pod network through this machine.
type podListener struct {
	net.Listener
	pods func(netip.Addr) bool
}

// Accept implements net.Listener.
func (l podListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if from, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil &&
			(l.pods(from.Addr().Unmap()) || isLocal(from.Addr().Unmap())) {
			return c, nil
		}
		c.Close()
	}
}

// isLocal reports whether an address belongs to this machine.
func isLocal(ip netip.Addr) bool {
	addresses, _ := net.InterfaceAddrs() // on failure, none is
	return slices.ContainsFunc(addresses, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr() == ip.WithZone("")
	})
}

// Moved returns a channel that receives a value when ListenForPods changes the Advertised address, until ctx ends.
func (a *Entry) Moved(ctx context.Context) <-chan struct{} {
	changes := make(chan struct{}, 1)
	_, moved := a.pods.get() // not in the goroutine, so that no change after the call is missed
	a.cfg.Guard.Spawn("advertised address", func() {
		defer close(changes)
		for {
			select {
			case <-moved:
			case <-ctx.Done():
				return
			}
			_, moved = a.pods.get()
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	})
	return changes
}
