package fake

import (
	"errors"
	"net"
	"net/netip"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// pool assigns addresses in turn, so that a freed address is not reused at once. It is
// not safe for concurrent use.
type pool struct {
	subnets  []netip.Prefix
	held     map[netip.Addr]bool
	at       int            // index of the subnet of last
	last     netip.Addr     // assigned last; not valid: none of this subnet
	reserved []net.Listener // mark the subnets as used for other processes
	grows    bool           // adds subnets as needed
}

// newPool returns a pool of one subnet. For an invalid one it is 10.88.0.0/16, or with loopback
// as many 127.88.N.0/24 as are needed and not used by another process.
func newPool(subnet netip.Prefix, loopback bool) *pool {
	a := &pool{held: map[netip.Addr]bool{}}
	switch {
	case subnet.IsValid():
		a.subnets = []netip.Prefix{subnet.Masked()}
	case loopback:
		a.grows = true
	default:
		a.subnets = []netip.Prefix{netip.MustParsePrefix("10.88.0.0/16")}
	}
	return a
}

// gateway returns the first address of a subnet, which no sandbox gets.
func gateway(subnet netip.Prefix) netip.Addr { return subnet.Addr().Next() }

// take returns the next free address. It fails with ResourceExhausted if there is none.
func (a *pool) take() (netip.Addr, error) {
	capacity := 0
	for _, s := range a.subnets { // the network's own address and the gateway's are not assigned
		capacity += 1<<min(s.Addr().BitLen()-s.Bits(), 30) - 2
	}
	if len(a.held) >= capacity {
		if err := a.grow(); err != nil {
			return netip.Addr{}, err
		}
	}
	ip := a.last
	for {
		if !ip.IsValid() {
			ip = gateway(a.subnets[a.at])
		}
		if ip = ip.Next(); !a.subnets[a.at].Contains(ip) {
			a.at, ip = (a.at+1)%len(a.subnets), netip.Addr{}
			continue
		}
		if !a.held[ip] {
			a.last, a.held[ip] = ip, true
			return ip, nil
		}
	}
}

// reservePort marks a subnet as used. No connection is accepted on it.
const reservePort = 1

// grow adds the first 127.88.N.0/24 that no other process on this machine uses, and reserves it until close by
// listening on reservePort of its gateway.
func (a *pool) grow() error {
	if !a.grows {
		return status.Errorf(codes.ResourceExhausted, "no address left in %s", a.subnets[0])
	}
	var failed error
	for n := range 256 {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 88, byte(n), 0}), 24)
		// Listening on a loopback address does not wait for anything.
		l, err := net.Listen("tcp", netip.AddrPortFrom(gateway(subnet), reservePort).String())
		if err == nil {
			a.reserved = append(a.reserved, l)
			a.subnets, a.at, a.last = append(a.subnets, subnet), len(a.subnets), netip.Addr{}
			return nil
		}
		failed = err
	}
	return status.Errorf(codes.ResourceExhausted, "no loopback subnet is free: %v", failed)
}

// close frees the subnets for other processes.
func (a *pool) close() error {
	var errs []error
	for _, l := range a.reserved {
		errs = append(errs, l.Close())
	}
	a.reserved = nil
	return errors.Join(errs...)
}
