package host

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"

	"monopod/testdata/harness"
)

// TestAddressesFollowTheMachine adds, removes and changes addresses of a machine.
func TestAddressesFollowTheMachine(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	onMachine(t, func(run func(command string)) {
		a := ReadAddresses([]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol})
		if got := a.Strings(); !slices.Equal(got, []string{"127.0.0.1"}) {
			t.Errorf("addresses without a network: %s", got)
		}
		host, err := netns.Get()
		if err != nil {
			t.Error(err)
			return
		}
		defer host.Close()
		ctx, cancel := context.WithCancel(t.Context())
		changed, ended := make(chan struct{}), make(chan struct{})
		defer func() { cancel(); <-ended }()
		go func() {
			defer close(ended)
			runtime.LockOSThread() // without UnlockOSThread, the thread exits with the goroutine
			if err := netns.Set(host); err != nil {
				t.Error(err)
				return
			}
			a.Run(ctx, func() {
				select {
				case changed <- struct{}{}:
				case <-ctx.Done():
				}
			})
		}()
		for _, step := range []struct {
			name, commands, want string // want "": the step checks nothing
		}{
			{"no default route",
				"link add mp-x type bridge; link set mp-x up; addr add 10.88.1.1/24 dev mp-x", "10.88.1.1"},
			{"an uplink",
				"link add eth0 type bridge; link set eth0 up; addr add 192.0.2.1/24 dev eth0; route add default via 192.0.2.254",
				"192.0.2.1"},
			{"later an IPv6 address", "addr add 2001:db8::1/64 dev eth0 nodad; route add default via 2001:db8::ff dev eth0",
				"192.0.2.1 2001:db8::1"},
			{"another address",
				"addr del 192.0.2.1/24 dev eth0; addr add 198.51.100.7/24 dev eth0; route add default via 198.51.100.254",
				"198.51.100.7 2001:db8::1"},
			{"a second address, and a second uplink",
				"addr add 198.51.100.8/24 dev eth0; link add eth1 type bridge; link set eth1 up; addr add 203.0.113.1/24 dev " +
					"eth1; route add default via 203.0.113.254 metric 1", ""},
			{"first uplink down", "link set eth0 down; link set eth0 up; addr del 198.51.100.7/24 dev eth0",
				"203.0.113.1 2001:db8::1"},
		} {
			for command := range strings.SplitSeq(step.commands, "; ") {
				run(command)
			}
			if step.want == "" {
				continue
			}
			for until := time.After(harness.Bound); strings.Join(a.Strings(), " ") != step.want; {
				select {
				case <-changed:
				case <-until:
					t.Errorf("%s: %s, want %s", step.name, a.Strings(), step.want)
					return
				}
			}
		}
	})
}

// TestLostAddressStays checks that Addresses keeps the last address without a network or without a default route.
func TestLostAddressStays(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	onMachine(t, func(run func(command string)) {
		families := []corev1.IPFamily{corev1.IPv4Protocol}
		for command := range strings.SplitSeq(
			"link add mp-x type bridge; link add eth0 type bridge; link set eth0 up; addr add 192.0.2.1/24 dev eth0; route "+
				"add default via 192.0.2.254", "; ") {
			run(command)
		}
		old := IPs(families)
		run("route del default")
		run("addr add 10.88.1.1/24 dev mp-x")
		if got := nextIPs(old, families); !slices.Equal(got, old) {
			t.Errorf("addresses without a default route: %s, want %s", got, old)
		}
		run("link del mp-x")
		run("link del eth0")
		if got := nextIPs(old, families); !slices.Equal(got, old) {
			t.Errorf("addresses without a link: %s, want %s", got, old)
		}
	})
}

// onMachine runs f on a thread in a new network namespace. run runs a command of ip.
func onMachine(t *testing.T, f func(run func(command string))) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // without UnlockOSThread, the thread exits with the goroutine
		host, err := netns.New()
		if err != nil {
			t.Error(err)
			return
		}
		defer host.Close()
		f(func(command string) {
			if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
				t.Errorf("ip %s: %v %s", command, err, out)
			}
		})
	}()
	<-done
}
