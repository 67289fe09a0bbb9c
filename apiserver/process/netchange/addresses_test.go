package netchange

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}
		if err := netlink.LinkAdd(link); err != nil {
			t.Error(err)
			return
		}
		for _, a := range []*netlink.Addr{
			{IPNet: prefix("192.0.2.1/24")},
			{IPNet: prefix("198.51.100.1/32"), Peer: prefix("198.51.100.2/32")},
			{IPNet: prefix("2001:db8::1/64"), Flags: unix.IFA_F_NODAD},
		} {
			if err := netlink.AddrAdd(link, a); err != nil {
				t.Error(err)
				return
			}
		}
		index := Index("eth0")
		if want, err := net.InterfaceByName("eth0"); err != nil || index != want.Index || index == 0 || Index("absent") != 0 {
			t.Errorf("indexes %d and %d, want %v and 0 (%v)", index, Index("absent"), want, err)
		}
		at := func(text string) Address { return Address{index, netip.MustParsePrefix(text)} }
		for family, want := range map[int][]Address{
			unix.AF_INET:   {at("192.0.2.1/24"), at("198.51.100.1/32")}, // not the other end of the link
			unix.AF_INET6:  {at("2001:db8::1/64")},
			unix.AF_UNSPEC: {at("192.0.2.1/24"), at("198.51.100.1/32"), at("2001:db8::1/64")},
		} {
			if got, err := Addresses(family); err != nil || !slices.Equal(got, want) {
				t.Errorf("family %d: %v, want %v (%v)", family, got, want, err)
			}
		}
	}()
	<-done
}

func prefix(text string) *net.IPNet {
	ip, network, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return &net.IPNet{IP: ip, Mask: network.Mask}
}

// BenchmarkAddresses compares the addresses of one interface of 200 with package net.
func BenchmarkAddresses(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("a network namespace needs root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			b.Error(err)
			return
		}
		for i := range 200 {
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprint("br", i), Flags: net.FlagUp}}); err != nil {
				b.Error(err)
				return
			}
		}
		for b.Loop() {
			_, _ = Addresses(unix.AF_INET)
			_ = Index("br100")
		}
		took := b.Elapsed()
		began := time.Now()
		for range b.N {
			if link, err := net.InterfaceByName("br100"); err == nil {
				_, _ = link.Addrs()
			}
		}
		b.ReportMetric(float64(time.Since(began))/float64(took), "x-faster")
	}()
	<-done
}
