package cni

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// send sends bytes from this namespace to an address, and returns the time until the receiver has read them.
func send(t *testing.T, address string, bytes int) time.Duration {
	t.Helper()
	began := time.Now()
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(make([]byte, bytes)); err != nil {
		t.Error(err)
	}
	c.(*net.TCPConn).CloseWrite()
	if _, err := io.ReadAll(c); err != nil {
		t.Error(err)
	}
	return time.Since(began)
}

// sink listens on a port of this namespace, and discards what it reads.
func sink(t *testing.T) (port uint16) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Error(err)
		return 0
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(io.Discard, c); c.Close() }()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func ifbs(t *testing.T) (n int) {
	links, err := netlink.LinkList()
	if err != nil {
		t.Error(err)
	}
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, "mpb") {
			n++
		}
	}
	return n
}

func TestBandwidth(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t, ranges...)
		// 1 MiB at 2 MB/s takes half a second, minus an initial burst.
		const bytes, rate, least = 1 << 20, 16e6, 250 * time.Millisecond
		slow, fast := newPod(t, n, "bw-slow"), newPod(t, n, "bw-fast")
		slow.bandwidth = Bandwidth{IngressRate: rate, IngressBurst: 1<<32 - 1, EgressRate: rate, EgressBurst: 1<<32 - 1}
		slow.add()
		fast.add()
		for _, p := range []*pod{slow, fast} {
			atHost := sink(t)
			var atPod uint16
			var out time.Duration
			p.inside(func() {
				atPod = sink(t)
				out = send(t, at(n.Gateways()[1], atHost), bytes)
			})
			in := send(t, at(p.ips[0], atPod), bytes)
			if limited := p == slow; limited && (in < least || out < least) {
				t.Errorf("%s: %s to the pod, %s from it: want at least %s", p.id, in, out, least)
			}
		}
		if got := ifbs(t); got != 1 {
			t.Errorf("%d ifb devices, want one", got)
		}
		slow.add() // a repeated ADD
		if got := ifbs(t); got != 1 {
			t.Errorf("%d ifb devices after ADD again, want one", got)
		}
		if out, err := slow.run("DEL"); err != nil || ifbs(t) != 0 {
			t.Errorf("DEL: %v %s, %d ifb devices", err, out, ifbs(t))
		}
		// Reclaim removes the ifb device of a pod without DEL.
		slow.add()
		link, err := netlink.LinkByName(vethName(slow.id, "eth0"))
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err == nil {
			err = reclaimIFBs("mp-another")
		}
		if err != nil || ifbs(t) != 1 {
			t.Errorf("reclaim of another instance: %v, %d ifb devices, want one", err, ifbs(t))
		}
		if err := reclaimIFBs(n.Bridge); err != nil || ifbs(t) != 0 {
			t.Errorf("reclaim: %v, %d ifb devices left", err, ifbs(t))
		}
		bad := newPod(t, n, "bw-bad")
		bad.bandwidth.EgressRate = 10
		if out, err := bad.run("ADD"); err == nil || !strings.Contains(fmt.Sprint(out), "not between 1k and 1P") {
			t.Errorf("ADD with 10 bits per second: %v %s", err, out)
		}
	})
}
