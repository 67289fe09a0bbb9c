package kernel

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"monopod/testdata/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A new address is reported; the watch ends with its context.
func TestWatchNetwork(t *testing.T) {
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
		changes <- WatchNetwork(ctx)
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
