// Package rtnetlink sends requests about links, addresses and routes to the kernel, several at once: each of the calls of
// a network plugin needs a few, in a network namespace of which nothing is kept open.
package rtnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Socket is a connection in one network namespace. Only one goroutine may use it.
type Socket struct {
	fd   int
	last uint32 // number of the last request
}

// Open opens a socket in the thread's network namespace.
func Open() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &Socket{fd: fd}, nil
}

// OpenAt opens a socket in another network namespace.
func OpenAt(ns netns.NsHandle) (s *Socket, err error) {
	err = Inside(ns, func() error {
		s, err = Open()
		return err
	})
	return s, err
}

// Close closes the socket.
func (s *Socket) Close() { _ = unix.Close(s.fd) }

// Inside calls f on a thread in the namespace. If the thread cannot return from there, it is not reused.
func Inside(ns netns.NsHandle, f func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := netns.Set(ns); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	ferr := f()
	if err := netns.Set(home); err != nil {
		return errors.Join(ferr, fmt.Errorf("return to the host's network namespace: %w", err))
	}
	runtime.UnlockOSThread()
	return ferr
}

// largest is the maximum size of an answer: about a link, without its statistics, it has less than 2 KB.
const largest = 16 << 10

// Do sends the requests at once, which the kernel processes in their order, also after one that failed. It returns
// the error of each.
func (s *Socket) Do(requests ...*nl.NetlinkRequest) ([]error, error) {
	_, errs, err := s.ask(requests)
	return errs, err
}

// All is Do for requests of which none may fail: it returns their errors.
func (s *Socket) All(requests ...*nl.NetlinkRequest) error {
	errs, err := s.Do(requests...)
	return errors.Join(append(errs, err)...)
}

// ask sends the requests and returns the last answer that is not an error, and the errors. All answers wait by the time
// that the kernel has taken the requests; the last one is always answered.
func (s *Socket) ask(requests []*nl.NetlinkRequest) (answer []byte, errs []error, err error) {
	first := s.last + 1
	var data []byte
	for i, r := range requests {
		s.last++
		r.Seq = s.last
		if r.Flags &^= unix.NLM_F_ACK; i == len(requests)-1 {
			r.Flags |= unix.NLM_F_ACK
		}
		data = append(data, r.Serialize()...)
		data = append(data, make([]byte, -len(data)&(unix.NLMSG_ALIGNTO-1))...)
	}
	if err := unix.Sendto(s.fd, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, nil, err
	}
	errs = make([]error, len(requests))
	buffer := make([]byte, largest)
	for {
		n, err := unix.Read(s.fd, buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		for rest := buffer[:n]; len(rest) >= unix.SizeofNlMsghdr; {
			size, kind, number := binary.NativeEndian.Uint32(rest), binary.NativeEndian.Uint16(rest[4:]), binary.NativeEndian.Uint32(rest[8:])
			if size < unix.SizeofNlMsghdr || int(size) > len(rest) {
				return nil, nil, unix.EBADMSG
			}
			payload := rest[unix.SizeofNlMsghdr:size]
			rest = rest[min(len(rest), (int(size)+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
			at := number - first
			switch {
			case at >= uint32(len(requests)): // of an earlier request
			case kind != unix.NLMSG_ERROR:
				answer = append([]byte(nil), payload...)
			case len(payload) < 4:
				return nil, nil, unix.EBADMSG
			default:
				if code := int32(binary.NativeEndian.Uint32(payload)); code != 0 {
					errs[at] = unix.Errno(-code)
				}
				if int(at) == len(requests)-1 {
					return answer, errs, nil
				}
			}
		}
	}
}

// Link is what is known of a link.
type Link struct{ Index, MTU int }

// Link finds a link by its name; ENODEV: there is none.
func (s *Socket) Link(name string) (Link, error) { return s.LinkAfter(name) }

// LinkAfter is Link after other requests, which it sends at the same time and of which none may fail.
func (s *Socket) LinkAfter(name string, requests ...*nl.NetlinkRequest) (Link, error) {
	const withoutStatistics = 1 << 3 // RTEXT_FILTER_SKIP_STATS
	get := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	get.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	get.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	get.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(withoutStatistics)))
	answer, errs, err := s.ask(append(requests, get))
	if err := errors.Join(append(errs, err)...); err != nil {
		return Link{}, err
	}
	if len(answer) < unix.SizeofIfInfomsg {
		return Link{}, unix.EBADMSG
	}
	out := Link{Index: int(int32(binary.NativeEndian.Uint32(answer[4:])))}
	attributes, err := nl.ParseRouteAttr(answer[unix.SizeofIfInfomsg:])
	for _, a := range attributes {
		if a.Attr.Type == unix.IFLA_MTU && len(a.Value) >= 4 {
			out.MTU = int(binary.NativeEndian.Uint32(a.Value))
		}
	}
	return out, err
}

// Remove removes a link; none of that name is no error.
func (s *Socket) Remove(name string) error {
	link, err := s.Link(name)
	if err == nil {
		request := nl.NewNetlinkRequest(unix.RTM_DELLINK, 0)
		base := nl.NewIfInfomsg(unix.AF_UNSPEC)
		base.Index = int32(link.Index)
		request.AddData(base)
		err = s.All(request)
	}
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// Up is the request that sets a link up. index is 1 for the loopback device.
func Up(index int) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, 0)
	base := nl.NewIfInfomsg(unix.AF_UNSPEC)
	base.Index, base.Flags, base.Change = int32(index), unix.IFF_UP, unix.IFF_UP
	request.AddData(base)
	return request
}

// Address is the request that gives a link an address, which is used at once, without duplicate address detection for IPv6.
func Address(index int, ip netip.Addr) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	base := nl.NewIfAddrmsg(family(ip))
	base.Index, base.Prefixlen = uint32(index), uint8(ip.BitLen())
	if ip.Is6() {
		base.IfAddrmsg.Flags = unix.IFA_F_NODAD
	}
	request.AddData(base)
	for _, attribute := range []int{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		request.AddData(nl.NewRtAttr(attribute, ip.AsSlice()))
	}
	return request
}

// Routes are the requests for a route to a gateway on the link itself, and for the default route through it.
func Routes(index int, gateway netip.Addr) []*nl.NetlinkRequest {
	direct, other := route(gateway), route(gateway)
	near := direct.Data[0].(*nl.RtMsg)
	near.Scope, near.Dst_len = unix.RT_SCOPE_LINK, uint8(gateway.BitLen())
	direct.AddData(nl.NewRtAttr(unix.RTA_DST, gateway.AsSlice()))
	other.AddData(nl.NewRtAttr(unix.RTA_GATEWAY, gateway.AsSlice()))
	for _, request := range []*nl.NetlinkRequest{direct, other} {
		request.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(index))))
	}
	return []*nl.NetlinkRequest{direct, other}
}

func route(to netip.Addr) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	base := nl.NewRtMsg()
	base.Family = uint8(family(to))
	request.AddData(base)
	return request
}

func family(ip netip.Addr) int {
	if ip.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
