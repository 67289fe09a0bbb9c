// Package addresses gives the pods of the fake runtime theirs.
package addresses

import (
	"errors"
	"net"
	"net/netip"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Pool is the addresses that can be given, in turn, so that one that came free is not
// given again at once. It is not safe for concurrent use.
type Pool struct {
	subnets []netip.Prefix
	held    map[netip.Addr]bool
	at      int        // index of the subnet of last
	last    netip.Addr // given last; not valid: none of this subnet
	// claimed keep other processes off the subnets. It is nil where nothing really
	// listens, and subnets never grow.
	claimed []net.Listener
	grows   bool
}

// New is a pool of one subnet. An invalid one is 10.88.0.0/16, or with loopback each
// 127.88.N.0/24 that is needed and no other process has.
func New(subnet netip.Prefix, loopback bool) *Pool {
	a := &Pool{held: map[netip.Addr]bool{}}
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

// gateway is the first address of a subnet, which no sandbox gets.
func gateway(subnet netip.Prefix) netip.Addr { return subnet.Addr().Next() }

// room is how many sandboxes there can be in the present subnets: neither the
// subnet's own address nor the gateway's is given.
func (a *Pool) room() int {
	room := 0
	for _, s := range a.subnets {
		room += 1<<min(s.Addr().BitLen()-s.Bits(), 30) - 2
	}
	return room
}

// Take returns the next free address, of one more subnet if need be.
func (a *Pool) Take() (netip.Addr, error) {
	if len(a.held) >= a.room() {
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

// Free gives an address back.
func (a *Pool) Free(ip netip.Addr) { delete(a.held, ip) }

// claimPort is nobody's: nothing is ever accepted on it.
const claimPort = 1

// grow adds the first 127.88.N.0/24 whose gateway port can be bound, and is until
// close: no other process on this machine has that subnet.
func (a *Pool) grow() error {
	if !a.grows {
		return status.Errorf(codes.ResourceExhausted, "no address left in %s", a.subnets[0])
	}
	var failed error
	for n := range 256 {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 88, byte(n), 0}), 24)
		// Listening on a loopback address does not wait for anything.
		claim, err := net.Listen("tcp", netip.AddrPortFrom(gateway(subnet), claimPort).String())
		if err == nil {
			a.claimed = append(a.claimed, claim)
			a.subnets, a.at, a.last = append(a.subnets, subnet), len(a.subnets), netip.Addr{}
			return nil
		}
		failed = err
	}
	return status.Errorf(codes.ResourceExhausted, "no loopback subnet is free: %v", failed)
}

// Close lets other processes have the subnets.
func (a *Pool) Close() error {
	var errs []error
	for _, claim := range a.claimed {
		errs = append(errs, claim.Close())
	}
	a.claimed = nil
	return errors.Join(errs...)
}
