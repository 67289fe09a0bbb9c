package netchange

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"monopod/testdata/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A new address is reported; the watch ends with its context.
func TestWatch(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan (<-chan struct{}), 1)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- err
			return
		}
		changes <- Watch(ctx)
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err == nil {
			err = netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet([]byte{192, 0, 2, 1})})
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Skip("no network namespace: ", err)
	}
	watch := <-changes
	select {
	case _, open := <-watch:
		if !open {
			t.Fatal("the watch ended")
		}
	case <-time.After(harness.Bound):
		t.Fatal("a new address was not reported")
	}
	cancel()
	for range watch {
		continue
	}
}

// What the kernel adds for a link by itself is not received; what leads to other machines is.
func TestOnlyWideChanges(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	inNamespace(t, func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := listen(fd); err != nil {
			return err
		}
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b"}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		for _, name := range []string{"a", "b"} {
			link, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetUp(link)
			}
			if err == nil {
				err = netlink.AddrAdd(link, &netlink.Addr{IPNet: prefix("fe80::1/64"), Flags: unix.IFA_F_NODAD})
			}
			if err != nil {
				return err
			}
		}
		if got := received(fd); len(got) > 0 {
			t.Errorf("received %v for links", got)
		}
		for _, c := range []struct {
			do   func() error
			want uint16
		}{
			{func() error { return netlink.AddrAdd(veth, &netlink.Addr{IPNet: prefix("192.0.2.1/24")}) }, unix.RTM_NEWADDR},
			{func() error {
				return netlink.AddrAdd(veth, &netlink.Addr{IPNet: prefix("169.254.0.1/16"), Scope: unix.RT_SCOPE_LINK})
			}, unix.RTM_NEWADDR},
			{func() error {
				return netlink.AddrAdd(veth, &netlink.Addr{IPNet: prefix("2001:db8::1/64"), Flags: unix.IFA_F_NODAD})
			}, unix.RTM_NEWADDR},
			{func() error {
				return netlink.RouteAdd(&netlink.Route{LinkIndex: veth.Index, Dst: prefix("198.51.100.0/24")})
			}, unix.RTM_NEWROUTE},
			{func() error { return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("192.0.2.2")}) }, unix.RTM_NEWROUTE},
			{func() error { return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("2001:db8::2")}) }, unix.RTM_NEWROUTE},
			{func() error { return netlink.RouteDel(&netlink.Route{Gw: net.ParseIP("2001:db8::2")}) }, unix.RTM_DELROUTE},
			{func() error { return netlink.AddrDel(veth, &netlink.Addr{IPNet: prefix("192.0.2.1/24")}) }, unix.RTM_DELADDR},
		} {
			err := c.do()
			var got []uint16
			if err != nil || !harness.Eventually(harness.Enough, func() bool { // IPv6 addresses are added by another thread
				got = append(got, received(fd)...)
				return slices.Contains(got, c.want)
			}) {
				t.Errorf("%v, received %v, want %d", err, got, c.want)
			}
		}
		return nil
	})
}

// received returns the types of the messages that have arrived.
func received(fd int) (types []uint16) {
	message := make([]byte, os.Getpagesize())
	for {
		n, err := unix.Read(fd, message)
		if err != nil {
			return types
		}
		for at := 0; at+unix.SizeofNlMsghdr <= n; at += int(binary.NativeEndian.Uint32(message[at:])+3) &^ 3 {
			types = append(types, binary.NativeEndian.Uint16(message[at+typeAt:]))
		}
	}
}

// inNamespace calls f in a network namespace of its own.
func inNamespace(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
