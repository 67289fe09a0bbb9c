package service

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// world is a machine: a network namespace with a bridge, to which pods, namespaces too, are attached.
type world struct {
	t     testing.TB
	proxy *Proxy
	host  netns.NsHandle
	pods  int
	// outside is another machine, to which the default route leads.
	outside *node
	ends    []func() // the last first
}

// machine runs f on a thread in a network namespace of its own: the real machine's network is not changed.
func machine(t testing.TB, f func(w *world)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		host, err := netns.New()
		if err != nil {
			t.Error(err)
			return
		}
		w := &world{t: t, host: host}
		defer func() {
			for i := range w.ends {
				w.ends[len(w.ends)-1-i]()
			}
			host.Close()
		}()
		if err := w.setUp(); err != nil {
			t.Error(err)
			return
		}
		w.proxy = w.newProxy()
		f(w)
	}()
	<-done
}

const tableName = "monopod-test-services"

func (w *world) newProxy() *Proxy {
	p := New(Config{
		Table: tableName, Node: Node{Name: "here"}, Bridge: "br", Bridges: "br", Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, Log: zap.NewNop(),
	})
	w.ends = append(w.ends, p.Close)
	return p
}

func (w *world) setUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: named("br")}
	errs := []error{netlink.LinkSetUp(lo), netlink.LinkAdd(bridge), netlink.LinkSetUp(bridge)}
	for _, text := range []string{"10.88.0.1/24", "fd88::1/64"} {
		errs = append(errs, netlink.AddrAdd(bridge, address(text)))
	}
	for file, value := range map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"} {
		errs = append(errs, os.WriteFile("/proc/sys/net/"+file, []byte(value), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	w.uplink()
	return nil
}

func named(name string) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return attrs
}

func address(text string) *netlink.Addr {
	addr, err := netlink.ParseAddr(text)
	if err != nil {
		panic(err)
	}
	addr.Flags = unix.IFA_F_NODAD
	return addr
}

// node is a pod, or the machine itself.
type node struct {
	t   testing.TB
	ns  netns.NsHandle
	ip  string
	ip6 string
	end func(func())
}

// self is the machine as a client.
func (w *world) self() *node {
	return &node{t: w.t, ns: w.host, end: func(f func()) { w.ends = append(w.ends, f) }}
}

// pod attaches a pod to the bridge.
func (w *world) pod() *node {
	w.pods++
	n := w.pods + 1
	p := &node{t: w.t, ip: fmt.Sprintf("10.88.0.%d", n), ip6: fmt.Sprintf("fd88::%x", n), end: func(f func()) { w.ends = append(w.ends, f) }}
	err := w.attach(p, fmt.Sprintf("veth%d", n), "br", p.ip+"/24", p.ip6+"/64", "10.88.0.1", "fd88::1")
	if err != nil {
		w.t.Error(err)
	}
	return p
}

// uplink attaches another machine, to which the default route leads.
func (w *world) uplink() {
	p := &node{t: w.t, ip: "203.0.113.2", ip6: "2001:db8::2", end: func(f func()) { w.ends = append(w.ends, f) }}
	err := w.attach(p, "uplink", "", p.ip+"/24", p.ip6+"/64", "203.0.113.1", "2001:db8::1")
	link, lerr := netlink.LinkByName("uplink")
	if err = errors.Join(err, lerr); err == nil {
		err = errors.Join(netlink.AddrAdd(link, address("203.0.113.1/24")), netlink.AddrAdd(link, address("2001:db8::1/64")))
	}
	for _, gateway := range []string{p.ip, p.ip6} {
		err = errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)}))
	}
	if err != nil {
		w.t.Error(err)
	}
	w.outside = p
}

func (w *world) attach(p *node, link, bridge, ip, ip6, gateway, gateway6 string) error {
	var err error
	if p.ns, err = netns.New(); err != nil { // which also enters it
		return err
	}
	p.end(func() { p.ns.Close() })
	if err := netns.Set(w.host); err != nil {
		return err
	}
	veth := netlink.NewVeth(named(link))
	veth.Flags = net.FlagUp
	if bridge != "" {
		master, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		veth.MasterIndex = master.Attrs().Index
	}
	veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(p.ns)
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	if bridge != "" { // as our CNI plugin does
		if err := netlink.LinkSetHairpin(veth, true); err != nil {
			return err
		}
	}
	h, err := netlink.NewHandleAt(p.ns)
	if err != nil {
		return err
	}
	defer h.Close()
	eth0, err := h.LinkByName("eth0")
	if err != nil {
		return err
	}
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	return errors.Join(h.LinkSetUp(lo), h.AddrAdd(eth0, address(ip)), h.AddrAdd(eth0, address(ip6)), h.LinkSetUp(eth0),
		h.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.ParseIP(gateway)}),
		h.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.ParseIP(gateway6)}))
}

// inside runs f in the node's network namespace.
func (p *node) inside(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		err := netns.Set(p.ns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// serve answers on the port, over TCP and UDP, with the name and the client's address.
func (p *node) serve(name string, port int) *node {
	at := fmt.Sprintf(":%d", port)
	var tcp net.Listener
	var udp net.PacketConn
	err := p.inside(func() (err error) {
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

// ask returns what answers at the address: "name client".
func (p *node) ask(network, address string) (answer string, err error) {
	err = p.inside(func() error {
		c, err := net.DialTimeout(network, address, 10*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		answer, err = exchange(c)
		return err
	})
	return answer, err
}

func exchange(c net.Conn) (string, error) {
	c.SetDeadline(time.Now().Add(2 * time.Second))
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
