// Package systemd implements sd_notify(3): it notifies systemd, or another service manager that sets
// NOTIFY_SOCKET, when monopod is ready and when it stops.
package systemd

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/utils/clock"
)

// variable contains the socket's address; a leading @ marks an abstract one.
const variable = "NOTIFY_SOCKET"

// Socket is the service manager's socket; nil: no notifications.
type Socket struct{ address string }

// Take returns the socket in the environment, and removes the variable, so that child processes such as
// containerd do not notify in this one's place.
func Take() *Socket {
	address := os.Getenv(variable)
	if address == "" {
		return nil
	}
	_ = os.Unsetenv(variable) // the name is valid
	return &Socket{address}
}

// askPeriod is the interval at which readiness is checked.
const askPeriod = 100 * time.Millisecond

// Run notifies that monopod is ready when ready returns no error, and that it stops when ctx ends. It fails if
// it cannot write to the socket.
func (s *Socket) Run(ctx context.Context, c clock.Clock, ready func(context.Context) error) error {
	if s == nil {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.address, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("%s: %w", variable, err)
	}
	defer conn.Close()
	for ctx.Err() == nil && ready(ctx) != nil {
		select {
		case <-ctx.Done():
		case <-c.After(askPeriod):
		}
	}
	if ctx.Err() == nil {
		if err := tell(conn, "READY=1"); err != nil {
			return err
		}
		<-ctx.Done()
	}
	return tell(conn, "STOPPING=1")
}

func tell(conn *net.UnixConn, state string) error {
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("%s: %w", variable, err)
	}
	return nil
}
