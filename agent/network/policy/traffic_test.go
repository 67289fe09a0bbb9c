package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/agent/network/networktest"
)

// changes is how often endpoints and policies change under traffic, unless MONOPOD_CHANGES is set.
const changes = 200

// wait is the time limit for an answer.
const wait = time.Minute

// TestNoPacketIsLost changes the endpoints of a Service, policies and labels of pods under traffic that all policies
// allow. Each datagram, each byte of an open connection and each new connection gets an answer, both at the address of
// the Service and of the pod. If a policy blocks a flow, its packets are lost, and it continues after the policy allows
// it again.
func TestNoPacketIsLost(t *testing.T) {
	t.Parallel()
	newCluster(t, networktest.Config{Pods: 3}, func(c *cluster) {
		server, other, client := c.Pods[0], c.Pods[1], c.Pods[2]
		echo(c.Machine, server, 82)
		proxy := newProxy()
		defer proxy.Close()
		setService(t, proxy, 0, 80, server)
		setService(t, proxy, 1, 82, server)
		c.space("one")
		for i, app := range []string{"app=server", "app=server", "app=client"} {
			c.pod(i, "one", app)
		}
		c.apply(t, "one", "p", shut)

		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		var flows []*flow
		var group sync.WaitGroup
		for _, ip := range []int{0, 1} { // both families
			pod := []netip.Addr{server.IP, server.IP6}[ip]
			for _, f := range []*flow{
				{name: "datagrams to the Service", network: "udp", to: serviceAddresses(0)[ip]},
				{name: "datagrams to the pod", network: "udp", to: netip.AddrPortFrom(pod, 80)},
				{name: "a connection to the Service", network: "tcp", to: serviceAddresses(1)[ip]},
				{name: "a connection to the pod", network: "tcp", to: netip.AddrPortFrom(pod, 82)},
			} {
				f.name += " at " + f.to.String()
				if err := f.begin(client); err != nil {
					t.Error(err)
					return
				}
				flows = append(flows, f)
				group.Go(func() { f.err = f.run(ctx) })
			}
		}
		for i := range number(t, "MONOPOD_CHANGES", changes) {
			if i%20 < 2 { // few, because conntrack keeps each of them for two minutes
				if err := client.Inside(func() error { return connect(serviceAddresses(0)[i%2]) }); err != nil {
					t.Errorf("new connection to the Service at change %[2]d: %[1]v", err, i)
					break
				}
			}
			if i%2 == 0 {
				setService(t, proxy, 0, 80, server, other)
				c.pod(1, "one", "app=server", "role=caller")
				c.apply(t, "one", "p", open)
			} else {
				setService(t, proxy, 0, 80, server)
				c.pod(1, "one", "app=server")
				c.apply(t, "one", "p", shut)
			}
		}
		stop()
		group.Wait()
		for _, f := range flows {
			if f.err != nil || f.answers.Load() == 0 {
				t.Errorf("%s: %v, after %d answers", f.name, f.err, f.answers.Load())
			}
		}
		shutAndOpen(t, c, other, server)
	})
}

// All policies allow the client; only open allows callers.
const (
	always = "{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}"
	shut   = always + "]}"
	open   = always + ", {from: [{podSelector: {matchLabels: {role: caller}}}]}]}"
)

// shutAndOpen blocks and allows a flow a hundred times.
func shutAndOpen(t *testing.T, c *cluster, from, to *networktest.Node) {
	c.pod(1, "one", "app=server", "role=caller")
	c.apply(t, "one", "p", open)
	f := &flow{network: "udp", to: netip.AddrPortFrom(to.IP, 80)}
	if err := f.begin(from); err != nil {
		t.Error(err)
		return
	}
	defer f.conn.Close()
	for i := range 100 {
		c.apply(t, "one", "p", shut)
		if err := f.ask(time.Millisecond); err == nil {
			t.Errorf("round %d: got an answer although the policy blocks the flow", i)
			return
		}
		c.apply(t, "one", "p", open)
		if err := f.ask(wait); err != nil {
			t.Errorf("round %[2]d: no answer although the policy allows the flow: %[1]v", err, i)
			return
		}
	}
}

// flow sends datagrams, or bytes of a connection, each after the answer to the previous one.
type flow struct {
	name    string
	network string
	to      netip.AddrPort
	conn    net.Conn
	answers atomic.Int64
	err     error
}

// begin opens the flow and waits for a first answer. Before that, datagrams may be lost while the kernel resolves the
// link address of the destination.
func (f *flow) begin(from *networktest.Node) error {
	err := from.Inside(func() (err error) {
		f.conn, err = net.DialTimeout(f.network, f.to.String(), wait)
		return err
	})
	if err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < wait; {
		if err = f.ask(400 * time.Millisecond); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: no first answer: %w", f.name, err)
}

func (f *flow) run(ctx context.Context) error {
	defer f.conn.Close()
	pace := time.NewTicker(time.Millisecond) // leaves CPU time for the changes
	defer pace.Stop()
	for ; ctx.Err() == nil; <-pace.C {
		if err := f.ask(wait); err != nil {
			return err
		}
		f.answers.Add(1)
	}
	return nil
}

func (f *flow) ask(wait time.Duration) error {
	if err := f.conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if _, err := f.conn.Write([]byte("x")); err != nil {
		return err
	}
	_, err := f.conn.Read(make([]byte, 100))
	return err
}

// connect opens a connection, which the server closes. It returns an error if the kernel had to retransmit a packet.
func connect(to netip.AddrPort) error {
	conn, err := net.DialTimeout("tcp", to.String(), wait)
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	var info *unix.TCPInfo
	var failed error
	if err := raw.Control(
		func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) }); err != nil ||
		failed != nil {
		return errors.Join(err, failed)
	}
	if info.Total_retrans > 0 {
		return fmt.Errorf("%d retransmitted packets", info.Total_retrans)
	}
	_ = conn.SetDeadline(time.Now().Add(wait))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

// echo runs an echo server on the port of a pod until the test ends.
func echo(m *networktest.Machine, n *networktest.Node, port uint16) {
	var l net.Listener
	err := n.Inside(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	})
	if err != nil {
		m.T.Error(err)
		return
	}
	m.T.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}
