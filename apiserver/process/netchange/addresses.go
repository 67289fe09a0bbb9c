package netchange

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Address is an address of an interface of this machine, with its network.
type Address struct {
	Interface int // its index
	netip.Prefix
}

// Addresses returns the addresses of a family (unix.AF_INET, unix.AF_INET6; unix.AF_UNSPEC: both) in the network
// namespace of the calling thread. Package net always asks for both, and links of pods have IPv6 addresses; for those of
// one interface it also asks for all links, each of which the kernel describes in some 1.5 KB.
func Addresses(family int) ([]Address, error) {
	answer, err := syscall.NetlinkRIB(unix.RTM_GETADDR, family)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(answer)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out []Address
	for _, m := range messages {
		if m.Header.Type != unix.RTM_NEWADDR || len(m.Data) < unix.SizeofIfAddrmsg {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		if ip := localAddress(attributes); ip.IsValid() {
			// struct ifaddrmsg: family, length of the network's prefix, flags, scope, index of the interface
			index := int(binary.NativeEndian.Uint32(m.Data[4:]))
			out = append(out, Address{Interface: index, Prefix: netip.PrefixFrom(ip, int(m.Data[1]))})
		}
	}
	return out, nil
}

// localAddress returns this machine's address: on a link to one other machine, IFA_ADDRESS is the other one's.
func localAddress(attributes []syscall.NetlinkRouteAttr) (ip netip.Addr) {
	for _, a := range attributes {
		is, ok := netip.AddrFromSlice(a.Value)
		if ok && (a.Attr.Type == unix.IFA_LOCAL || a.Attr.Type == unix.IFA_ADDRESS && !ip.IsValid()) {
			ip = is
		}
	}
	return ip
}

// Index returns the index of an interface in the network namespace of the calling thread; 0 if there is none of that
// name.
func Index(name string) int {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(s)
	if unix.IoctlIfreq(s, unix.SIOCGIFINDEX, request) != nil {
		return 0
	}
	return int(request.Uint32())
}
