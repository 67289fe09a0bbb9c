package systemd_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/systemd"
	"monopod/testdata/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen returns the service manager's socket, whose address is in the environment.
func listen(t *testing.T, address string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", address)
	return conn
}

// hear returns the notification received within a time.
func hear(t *testing.T, conn *net.UnixConn, within time.Duration) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1000)
	n, err := conn.Read(buf)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestReadyIsNotified(t *testing.T) {
	for name, address := range map[string]string{"file": t.TempDir() + "/s", "abstract": "@monopod-" +
		strings.ReplaceAll(t.TempDir(), "/", "-")} {
		t.Run(name, func(t *testing.T) {
			conn := listen(t, address)
			var is atomic.Bool
			ctx, cancel := context.WithCancel(t.Context())
			s, over := systemd.Take(), make(chan error)
			go func() {
				over <- s.Run(ctx, clock.RealClock{}, func(context.Context) error {
					if !is.Load() {
						return errors.New("not yet")
					}
					return nil
				})
			}()
			if said := hear(t, conn, 200*time.Millisecond); said != "" {
				t.Errorf("notified %q before it is ready", said)
			}
			is.Store(true)
			if said := hear(t, conn, harness.Bound); said != "READY=1" {
				t.Errorf("notified %q when it is ready, want READY=1", said)
			}
			cancel()
			if said := hear(t, conn, harness.Bound); said != "STOPPING=1" {
				t.Errorf("notified %q at its end, want STOPPING=1", said)
			}
			if err := <-over; err != nil {
				t.Error(err)
			}
			if left := os.Getenv("NOTIFY_SOCKET"); left != "" {
				t.Errorf("NOTIFY_SOCKET is still %q for child processes", left)
			}
		})
	}
}

// TestEndsBeforeReady: without a READY there is no STOPPING.
func TestEndsBeforeReady(t *testing.T) {
	conn := listen(t, t.TempDir()+"/s")
	ctx, cancel := context.WithCancel(t.Context())
	err := systemd.Take().Run(ctx, clock.RealClock{}, func(context.Context) error {
		cancel()
		return nil
	})
	if said := hear(t, conn, harness.Bound); said != "STOPPING=1" || err != nil {
		t.Errorf("notified %q, %v", said, err)
	}
}

func TestNoNotificationWithoutSocket(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	err := systemd.Take().Run(t.Context(), clock.RealClock{}, func(context.Context) error {
		t.Error("asked whether the server is ready, without a socket")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestMissingSocket(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", t.TempDir()+"/s")
	if err := systemd.Take().Run(t.Context(), clock.RealClock{}, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "NOTIFY_SOCKET: ") {
		t.Error(err)
	}
}
