package networktest

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Serve accepts TCP connections at the ports and answers UDP datagrams with the client's address, until the test ends.
func (m *Machine) Serve(n *Node, ports ...uint16) {
	m.T.Helper()
	for _, port := range ports {
		at := fmt.Sprintf(":%d", port)
		var tcp net.Listener
		var udp net.PacketConn
		err := n.Inside(func() (err error) {
			if tcp, err = net.Listen("tcp", at); err != nil {
				return err
			}
			udp, err = net.ListenPacket("udp", at)
			return err
		})
		if err != nil {
			m.T.Error(err)
			return
		}
		m.ends = append(m.ends, func() { tcp.Close(); udp.Close() })
		go func() {
			for {
				c, err := tcp.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		go func() {
			for b := make([]byte, 1); ; {
				_, from, err := udp.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = udp.WriteTo([]byte(from.(*net.UDPAddr).AddrPort().Addr().Unmap().String()), from)
			}
		}()
	}
}

// Probe is a connection to try.
type Probe struct {
	From *Node
	UDP  bool // otherwise TCP
	To   netip.AddrPort
	Want bool // an answer is expected
}

func (p Probe) String() string {
	network := "tcp"
	if p.UDP {
		network = "udp"
	}
	return fmt.Sprintf("%s from %s to %s", network, p.From.Name, p.To)
}

const (
	probeTimeout   = 10 * time.Second
	resendTime     = 300 * time.Millisecond // a datagram may be lost before the link address of its destination is known
	unexpectedWait = 10 * time.Millisecond  // for answers that are not expected
)

// Answer is the result of a Probe.
type Answer struct {
	OK   bool
	From string // the client's address as the server sees it; only with UDP
}

// Try tries all connections at once. It waits for expected answers, and briefly for others.
func (m *Machine) Try(probes ...Probe) []Answer {
	m.T.Helper()
	answers := make([]Answer, len(probes))
	fds := make([]int, len(probes))
	byNode := map[*Node][]int{}
	for i, p := range probes {
		byNode[p.From] = append(byNode[p.From], i)
	}
	for n, all := range byNode {
		err := n.Inside(func() error {
			for _, i := range all {
				var err error
				if fds[i], err = probes[i].open(); err != nil {
					return fmt.Errorf("%s: %w", probes[i], err)
				}
			}
			return nil
		})
		if err != nil {
			m.T.Error(err)
		}
	}
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	began := time.Now()
	resend := began.Add(resendTime)
	for time.Since(began) < probeTimeout && poll(probes, fds, answers, unexpectedWait) {
		if time.Now().After(resend) {
			resend = time.Now().Add(resendTime)
			for i, p := range probes {
				if p.UDP && p.Want && !answers[i].OK {
					_, _ = unix.Write(fds[i], []byte("x")) // a failed resend is like a lost datagram
				}
			}
		}
	}
	for end := time.Now().Add(unexpectedWait); time.Now().Before(end); {
		poll(probes, fds, answers, time.Until(end))
	}
	return answers
}

// Check tries all connections, and reports unexpected results.
func (m *Machine) Check(what string, probes ...Probe) (ok bool) {
	m.T.Helper()
	ok = true
	for i, a := range m.Try(probes...) {
		if a.OK != probes[i].Want {
			m.T.Errorf("%s: %s: answered %v, want %v", what, probes[i], a.OK, probes[i].Want)
			ok = false
		}
	}
	return ok
}

// open begins the connection.
func (p Probe) open() (int, error) {
	domain, typ := unix.AF_INET, unix.SOCK_STREAM
	if p.To.Addr().Is6() {
		domain = unix.AF_INET6
	}
	if p.UDP {
		typ = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(domain, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var to unix.Sockaddr = &unix.SockaddrInet4{Port: int(p.To.Port())}
	if p.To.Addr().Is6() {
		to = &unix.SockaddrInet6{Port: int(p.To.Port()), Addr: p.To.Addr().As16()}
	} else {
		to.(*unix.SockaddrInet4).Addr = p.To.Addr().As4()
	}
	if err := unix.Connect(fd, to); err != nil && err != unix.EINPROGRESS {
		return fd, err
	}
	if p.UDP {
		_, err = unix.Write(fd, []byte("x"))
	}
	return fd, err
}

// poll waits for answers, and reports whether an expected one is still missing.
func poll(probes []Probe, fds []int, answers []Answer, timeout time.Duration) bool {
	var waiting []unix.PollFd
	var which []int
	for i, p := range probes {
		if answers[i].OK {
			continue
		}
		events := int16(unix.POLLOUT)
		if p.UDP {
			events = unix.POLLIN
		}
		waiting, which = append(waiting, unix.PollFd{Fd: int32(fds[i]), Events: events}), append(which, i)
	}
	missing := func() bool {
		for i, p := range probes {
			if p.Want && !answers[i].OK {
				return true
			}
		}
		return false
	}
	if len(waiting) == 0 || timeout > unexpectedWait && !missing() {
		return missing()
	}
	if n, err := unix.Poll(waiting, max(1, int(timeout.Milliseconds()))); err != nil || n == 0 {
		return missing()
	}
	for j, w := range waiting {
		if w.Revents == 0 {
			continue
		}
		i := which[j]
		if probes[i].UDP {
			b := make([]byte, 100)
			n, err := unix.Read(fds[i], b)
			answers[i] = Answer{err == nil, string(b[:max(n, 0)])}
			continue
		}
		code, err := unix.GetsockoptInt(fds[i], unix.SOL_SOCKET, unix.SO_ERROR)
		answers[i].OK = err == nil && code == 0 && w.Revents&(unix.POLLERR|unix.POLLHUP) == 0
	}
	return missing()
}
