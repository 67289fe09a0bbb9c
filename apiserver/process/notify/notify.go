// Package notify tells systemd, or whoever else started monopod with a
// NOTIFY_SOCKET, when it is ready and when it ends, as sd_notify(3) says.
package notify

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/utils/clock"
)

// variable is where the socket's address stands; @ is an abstract one's first byte.
const variable = "NOTIFY_SOCKET"

// Socket is whom to tell; nil: nobody wants to know.
type Socket struct{ address string }

// Take is the socket that the environment names. It is taken out of there, so that
// programs started later, such as containerd, do not answer for this one.
func Take() *Socket {
	address := os.Getenv(variable)
	if address == "" {
		return nil
	}
	_ = os.Unsetenv(variable) // fails for no name but a bad one
	return &Socket{address}
}

// askPeriod is between questions whether all is ready.
const askPeriod = 100 * time.Millisecond

// Run tells that monopod is ready as soon as ready has no error, and, when ctx ends,
// that it ends. It fails where the socket cannot be written to.
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
