package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"monopod/agent/network/cni/rules"
	"monopod/agent/network/networktest"
)

// TestMain lets the test binary be the plugin, as monopod is.
func TestMain(m *testing.M) {
	if Invoked(os.Args[0]) {
		os.Exit(Main(os.Args[0]))
	}
	if conf := os.Getenv("CNI_TEST_SERVE"); conf != "" {
		fmt.Fprintln(os.Stderr, serveUntilKilled(conf))
		os.Exit(1)
	}
	// The race detector would delay the exit of every call of the plugin by a second.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// onHost runs f on a thread in a new network namespace, which represents the host. The real host does not change.
func onHost(t testing.TB, f func()) {
	t.Helper()
	networktest.Isolated(t, func(netns.NsHandle) { f() })
}

// pod is a network namespace that a mount keeps open, as containerd does.
type pod struct {
	t    testing.TB
	net  Network
	id   string
	path string
	ip   netip.Addr
	ips  []netip.Addr

	bandwidth Bandwidth
}

// pods numbers the namespaces, because pods of several tests may have the same ID.
var pods atomic.Int64

func newPod(t testing.TB, n Network, id string) *pod {
	name := fmt.Sprintf("mptest-%d-%d", os.Getpid(), pods.Add(1))
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Errorf("ip netns add: %v %s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", name).Run() })
	return &pod{t: t, net: n, id: id, path: "/var/run/netns/" + name}
}

func (p *pod) run(command string, ports ...rules.Port) (string, error) {
	list, err := os.ReadFile(filepath.Join(p.net.ConfDir(), confName))
	if err != nil {
		return "", err
	}
	var parsed struct{ Plugins []map[string]any }
	if err := json.Unmarshal(list, &parsed); err != nil {
		return "", err
	}
	conf := parsed.Plugins[0]
	conf["cniVersion"], conf["name"] = cniVersion, "monopod"
	conf["runtimeConfig"] = map[string]any{"portMappings": ports, "bandwidth": p.bandwidth}
	return p.exec(pluginName, command, conf)
}

func (p *pod) exec(plugin, command string, conf map[string]any) (string, error) {
	stdin, err := json.Marshal(conf)
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(p.net.BinDir(), plugin))
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+p.id, "CNI_NETNS="+p.path,
		"CNI_IFNAME=eth0", "CNI_PATH="+p.net.BinDir(), "CNI_ARGS=K8S_POD_NAMESPACE=ns;K8S_POD_NAME="+
			strings.TrimSuffix(p.id, "-again")+";K8S_POD_UID=u1")
	out, err := cmd.Output()
	return string(out), err
}

func (p *pod) add(ports ...rules.Port) {
	out, err := p.run("ADD", ports...)
	if err != nil {
		p.t.Errorf("ADD: %v: %s", err, out)
		return
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || len(result.IPs) != len(p.net.Subnets) {
		p.t.Errorf("ADD: %v: %s", err, out)
		return
	}
	p.ips = nil
	for _, ip := range result.IPs {
		p.ips = append(p.ips, ip.Address.Addr())
	}
	p.ip = p.ips[0]
}

// serve answers every connection to a port of the pod with the client's address.
func (p *pod) serve(port int) {
	ready := make(chan net.Listener, 1)
	go func() {
		runtime.LockOSThread()
		ns, err := netns.GetFromPath(p.path)
		if err == nil {
			err = netns.Set(ns)
			ns.Close()
		}
		if err != nil {
			p.t.Error(err)
		}
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			p.t.Error(err)
		}
		ready <- l
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, c.RemoteAddr().(*net.TCPAddr).IP)
			c.Close()
		}
	}()
	l := <-ready
	p.t.Cleanup(func() { l.Close() })
}

func get(addr string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, time.Minute)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	data, err := io.ReadAll(c)
	return string(data), err
}

// prepare sets up a network with subnets of the families of the ranges of Services.
func prepare(t testing.TB, services ...netip.Prefix) Network {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Error(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Error(err)
	}
	n, err := Prepare(Config{Dir: t.TempDir(), ID: "test", Executable: exe, Services: services, Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Error(err)
	}
	return n
}

func TestPodIsReachable(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t)
		a := newPod(t, n, "reached")
		a.add()
		checkPort(t, n, "reached")
		a.serve(8080)
		if got, err := get(a.ip.String() + ":8080"); err != nil || got != n.Gateways()[0].String() {
			t.Errorf("from the host to the pod: client %q, error %v; want the gateway as client", got, err)
		}
		if out, err := a.run("CHECK"); err != nil {
			t.Errorf("CHECK: %v %s", err, out)
		}
		for range 2 { // runtimes repeat DEL
			if out, err := a.run("DEL"); err != nil {
				t.Errorf("DEL: %v %s", err, out)
			}
		}
		if holders, err := n.pool().Holders(); err != nil || len(holders) != 0 {
			t.Errorf("holders after DEL: %v, error %v", holders, err)
		}
		if _, err := a.run("CHECK"); err == nil {
			t.Error("CHECK after DEL succeeded")
		}
	})
}

// checkPort checks the host end of the link of a pod.
func checkPort(t *testing.T, n Network, id string) {
	t.Helper()
	name := vethName(id, "eth0")
	bridge, err := netlink.LinkByName(n.Bridge)
	if err != nil {
		t.Error(err)
		return
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Error(err)
		return
	}
	if a := link.Attrs(); a.MasterIndex != bridge.Attrs().Index || a.Group != rules.Group(n.Bridge) ||
		a.MTU != bridge.Attrs().MTU || a.Flags&net.FlagUp == 0 {
		t.Errorf("the host end of the link has the attributes %+v", a)
	}
	if info, err := netlink.LinkGetProtinfo(link); err != nil || !info.Hairpin {
		t.Errorf("the bridge port has no hairpin mode: %+v, error %v", info, err)
	}
}

func TestAddWithoutBridge(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t)
		if err := n.Remove(); err != nil {
			t.Error(err)
		}
		p := newPod(t, n, "rebooted")
		p.add()
		p.serve(8080)
		if got, err := get(p.ip.String() + ":8080"); err != nil {
			t.Errorf("from the host to the pod: client %q, error %v", got, err)
		}
		p.add() // a repeated ADD for the same container, as after a crash
		checkPort(t, n, "rebooted")
		if holders, _ := n.pool().Holders(); len(holders) != 1 {
			t.Errorf("holders = %v, want one address", holders)
		}
	})
}

// If addVeth fails to remove the link of an interrupted attempt, the error contains the reason.
func TestFailedRemovalOfStaleLink(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t)
		bridge, err := netlink.LinkByName(n.Bridge)
		if err != nil {
			t.Error(err)
			return
		}
		here, err := netns.Get()
		if err != nil {
			t.Error(err)
			return
		}
		defer here.Close()
		err = addVeth(bridge, "lo", "eth0", here, hardwareAddr([]netip.Addr{netip.MustParseAddr("10.88.7.2")}))
		if !errors.Is(err, unix.EEXIST) || !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("got %v, want the errors that lo exists and that its removal fails", err)
		}
	})
}

func TestHostPort(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t)
		p := newPod(t, n, "ports")
		p.add(rules.Port{HostPort: 18080, ContainerPort: 8080, Protocol: "tcp"},
			rules.Port{HostPort: 18081, ContainerPort: 8080, Protocol: "tcp", HostIP: "127.0.0.1"})
		p.serve(8080)
		for addr, open := range map[string]bool{
			"127.0.0.1:18080": true, n.Gateways()[0].String() + ":18080": true,
			"127.0.0.1:18081": true, n.Gateways()[0].String() + ":18081": false,
		} {
			if got, err := get(addr); (err == nil) != open {
				t.Errorf("%s: %q, %v; want open=%t", addr, got, err, open)
			}
		}
		// The server sees the address of another pod, but the gateway if the client is the pod itself: with its own
		// address, the pod would not send replies over the link.
		other := newPod(t, n, "client")
		other.add()
		gateway := n.Gateways()[0].String()
		for client, want := range map[*pod]string{other: other.ip.String(), p: gateway} {
			client.inside(func() {
				if got, err := get(gateway + ":18080"); err != nil || got != want {
					t.Errorf("from pod %s: the server sees the client %q, want %s; error %v", client.id, got, want, err)
				}
			})
		}
		third := newPod(t, n, "third")
		port := rules.Port{HostPort: 18080, ContainerPort: 80, Protocol: "tcp"}
		if out, err := third.run("ADD", port); err == nil ||
			!strings.Contains(out, "another pod still uses one of the host ports") {
			t.Errorf("ADD with the host port of another pod: %v: %s", err, out)
		}
		if got, err := get("127.0.0.1:18080"); err != nil {
			t.Errorf("the host port after a conflicting ADD: client %q, error %v", got, err)
		}
		if _, err := p.run("DEL"); err != nil {
			t.Error(err)
		}
		if _, err := get("127.0.0.1:18080"); err == nil {
			t.Error("the host port still answers after DEL")
		}
		third.add(port)
	})
}

// TestUDPHostPortMoves checks that a client with one socket, which also sent while no pod had the port, reaches each
// pod that gets the port.
func TestUDPHostPortMoves(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t)
		for _, address := range []string{"127.0.0.1:18080", n.Gateways()[0].String() + ":18080"} {
			c, err := net.Dial("udp", address)
			if err != nil {
				t.Error(err)
				return
			}
			c.SetDeadline(time.Now().Add(time.Minute))
			for _, id := range []string{"first", "second"} {
				c.Write([]byte("x")) // no pod has the port
				p := newPod(t, n, id)
				p.add(rules.Port{HostPort: 18080, ContainerPort: 8080, Protocol: "udp"})
				var server net.PacketConn
				p.inside(func() { server, err = net.ListenPacket("udp", ":8080") })
				if err != nil {
					t.Error(err)
					return
				}
				go func() {
					buffer := make([]byte, 1)
					for {
						_, from, err := server.ReadFrom(buffer)
						if err != nil {
							return
						}
						server.WriteTo([]byte(id), from) // the client waits for it
					}
				}()
				if got := askUDP(c); got != id {
					t.Errorf("%s: the answer is from %q, want %s", address, got, id)
				}
				server.Close()
				if out, err := p.run("DEL"); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			}
			c.Close()
		}
	})
}

// askUDP sends datagrams until it receives an answer, at most 20 times. The host rejects datagrams while no pod has the
// port.
func askUDP(c net.Conn) string {
	for range 20 {
		if _, err := c.Write([]byte("x")); err != nil {
			continue // the error of an earlier datagram
		}
		buffer := make([]byte, 10)
		c.SetReadDeadline(time.Now().Add(time.Second)) // instead of the deadline of the test, a minute
		if got, err := c.Read(buffer); err == nil {
			return string(buffer[:got])
		}
	}
	return ""
}

func TestFailedAddLeavesNothing(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t)
		p := newPod(t, n, "fails")
		p.path = "/proc/self/status"
		if out, err := p.run("ADD"); err == nil || !strings.Contains(out, `"msg"`) {
			t.Errorf("%v, %s; want CNI's error object", err, out)
		}
		if holders, err := n.pool().Holders(); err != nil || len(holders) != 0 {
			t.Errorf("holders = %v, %v", holders, err)
		}
	})
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t)
		p := newPod(t, n, "lo")
		conf := map[string]any{"cniVersion": "0.3.1", "name": "cni-loopback", "type": "loopback"}
		if out, err := p.exec(loopbackName, "ADD", conf); err != nil || !strings.Contains(out, "127.0.0.1/8") {
			t.Errorf("%v: %s", err, out)
		}
		if out, err := p.exec(loopbackName, "DEL", conf); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
}

func BenchmarkAddDel(b *testing.B) {
	for _, way := range []string{"served", "alone", "served-dual-stack"} {
		b.Run(way, func(b *testing.B) {
			onHost(b, func() {
				var services []netip.Prefix
				if strings.HasSuffix(way, "dual-stack") {
					services = ranges
				}
				n := prepare(b, services...)
				if way != "alone" {
					defer serveCalls(b, n, zap.NewNop())()
				}
				benchmarkAddDel(b, n)
			})
		})
	}
}

func benchmarkAddDel(b *testing.B, n Network) {
	var add, del time.Duration
	for i := 0; b.Loop(); i++ {
		p := newPod(b, n, fmt.Sprint("bench", i))
		start := time.Now()
		p.add()
		added := time.Now()
		if _, err := p.run("DEL"); err != nil {
			b.Error(err)
		}
		add, del = add+added.Sub(start), del+time.Since(added)
	}
	b.ReportMetric(float64(add.Microseconds())/1000/float64(b.N), "ADD-ms")
	b.ReportMetric(float64(del.Microseconds())/1000/float64(b.N), "DEL-ms")
}
