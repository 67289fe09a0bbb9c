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

// changes is how often the endpoints of the Service and the policies change under traffic, unless MONOPOD_CHANGES says
// another number.
const changes = 200

// wait is how long an answer may take.
const wait = time.Minute

// TestNoPacketIsLost changes the endpoints of a Service, the policies and the labels of pods again and again under
// traffic that is allowed all the time: each datagram and each byte of connections that exist, and each new connection,
// is answered, by the Service's address and by the pod's. Of a path that is shut and opened again meanwhile, what is
// sent while it is shut is lost, and the same flow goes on afterwards.
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
		for _, ip := range []int{0, 1} { // of both families
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
			if i%20 < 2 { // not more of them, because the kernel remembers each for two minutes
				if err := client.Inside(func() error { return connect(serviceAddresses(0)[i%2]) }); err != nil {
					t.Errorf("a new connection to the Service: %v (%d)", err, i)
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

// Policies that allow the client all the time, and callers some of it.
const (
	always = "{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}"
	shut   = always + "]}"
	open   = always + ", {from: [{podSelector: {matchLabels: {role: caller}}}]}]}"
)

// shutAndOpen has a flow whose path is shut and opened again a hundred times.
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
			t.Errorf("the path is shut, and something is answered (%d)", i)
			return
		}
		c.apply(t, "one", "p", open)
		if err := f.ask(wait); err != nil {
			t.Errorf("the path is open again: %v (%d)", err, i)
			return
		}
	}
}

// flow is datagrams, or bytes of a connection, each of which is sent after the answer to the last one.
type flow struct {
	name    string
	network string
	to      netip.AddrPort
	conn    net.Conn
	answers atomic.Int64
	err     error
}

// begin opens the flow. It waits for a first answer, before which the kernel may lose datagrams: it asks for the link
// address of their destination.
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
	pace := time.NewTicker(time.Millisecond) // leaves the processors to the changes
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

// connect opens a connection, which the server closes. The kernel must not have had to send the first packet again.
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
		return fmt.Errorf("%d packets were sent again", info.Total_retrans)
	}
	_ = conn.SetDeadline(time.Now().Add(wait))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

// echo answers each connection to the port of a pod with what it sends, until the test ends.
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
