package service

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/network/networktest"
)

// world is a machine with a service proxy. Its pods reach each other at the link layer.
type world struct {
	*networktest.Machine
	t       testing.TB
	proxy   *Proxy
	outside *node // another machine, to which the default route leads
}

// machine runs f on a thread in a new network namespace. The network of the real machine does not change.
func machine(t testing.TB, f func(w *world)) {
	t.Helper()
	_, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables")
	networktest.Run(t, networktest.Config{NotIsolated: true, NotRouted: true, BrNetfilter: err == nil},
		func(m *networktest.Machine) {
			w := &world{Machine: m, t: t}
			w.outside = w.as(m.Outside)
			w.proxy = w.newProxy()
			f(w)
		})
}

const tableName = "monopod-test-services"

func (w *world) newProxy() *Proxy {
	p := New(Config{
		Table: tableName, Node: Node{Name: "here"}, Bridge: networktest.Bridge, Bridges: networktest.Bridge,
		Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, Log: zap.NewNop(),
	})
	w.Cleanup(p.Close)
	return p
}

// node is a pod, another machine, or the machine itself.
type node struct {
	*networktest.Node
	t       testing.TB
	ip, ip6 string
	end     func(func())
}

func (w *world) as(n *networktest.Node) *node {
	return &node{Node: n, t: w.t, ip: n.IP.String(), ip6: n.IP6.String(), end: w.Cleanup}
}

// self is the machine as a client.
func (w *world) self() *node { return w.as(w.Host) }

// pod attaches a pod to the bridge.
func (w *world) pod() *node {
	p, err := w.AddPod()
	if err != nil {
		w.t.Error(err)
	}
	return w.as(p)
}

// serve answers on the port, over TCP and UDP, with the name and the address of the client.
func (p *node) serve(name string, port int) *node {
	at := fmt.Sprintf(":%d", port)
	var tcp net.Listener
	var udp net.PacketConn
	err := p.Inside(func() (err error) {
		if tcp, err = net.Listen("tcp", at); err != nil {
			return err
		}
		udp, err = net.ListenPacket("udp", at)
		return err
	})
	if err != nil {
		p.t.Error(err)
		return p
	}
	p.end(func() { tcp.Close(); udp.Close() })
	answer := func(from net.Addr) []byte {
		host, _, _ := net.SplitHostPort(from.String())
		return []byte(name + " " + host)
	}
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			c.Write(answer(c.RemoteAddr()))
			c.Close()
		}
	}()
	go func() {
		for b := make([]byte, 1); ; {
			_, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			udp.WriteTo(answer(from), from)
		}
	}()
	return p
}

// ask connects to the address and returns the answer: "name client".
func (p *node) ask(network, address string) (answer string, err error) {
	return p.askFor(time.Minute, network, address)
}

// askFor is ask with a time limit.
func (p *node) askFor(limit time.Duration, network, address string) (answer string, err error) {
	err = p.Inside(func() error {
		c, err := net.DialTimeout(network, address, 10*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(limit))
		answer, err = exchange(c)
		return err
	})
	return answer, err
}

func exchange(c net.Conn) (string, error) {
	if _, udp := c.(*net.UDPConn); !udp {
		b, err := io.ReadAll(c)
		return string(b), err
	}
	if _, err := c.Write([]byte("x")); err != nil {
		return "", err
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	return string(b[:n]), err
}
