package plugin

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc/test/bufconn"
)

// Sockets are Unix sockets in memory, which a bubble of time knows. The zero value
// has none.
type Sockets struct {
	paths sync.Map // path → *bufconn.Listener
}

// Listen makes the socket at path, in place of one that is there.
func (s *Sockets) Listen(path string) (net.Listener, error) {
	l := bufconn.Listen(1 << 16)
	s.paths.Store(path, l)
	return l, nil
}

// Dial reaches who listens at path.
func (s *Sockets) Dial(ctx context.Context, path string) (net.Conn, error) {
	l, ok := s.paths.Load(path)
	if !ok {
		return nil, errors.New("nobody listens")
	}
	return l.(*bufconn.Listener).DialContext(ctx)
}
